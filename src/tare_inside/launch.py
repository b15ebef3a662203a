"""Runs a command as a child and writes down what it cost: `python launch.py RESULT_JSON -- COMMAND...`.

It stands between the platform and the workload so that start, end and resource use are taken inside, the same way
everywhere. It adds one process that sleeps in `wait4`. Exit code: the command's own, or 128 + the signal.

After it the launcher reads what a process finds around it here, beside the software (its variables, rights and limits,
its file systems), and whether the files that an earlier trial's list of software came from are as they were. It starts
without the site module: little is imported.

Tenants start together. Each makes `ready` in the folder TARE_BARRIER and waits for `go` there: a built-in program when
all is prepared, and with TARE_BARRIER_AT=launch this launcher, before it starts a command that knows nothing of it.
"""

import os
import sys
import time

try:
    import _signal as signal  # without the classes around it, which take longer to import than all the rest
    from _json import encode_basestring_ascii as quoted
except ImportError:  # another Python
    import signal
    from json import dumps as quoted

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells say it
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ENV = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "MALLOC_", "MIMALLOC_", "CUDA_", "PYTORCH_", "TORCH",
    "ATEN_", "ONEDNN_", "DNNL_", "NCCL_", "GLOO_", "NUMEXPR_", "NPY_", "LD_", "TRITON_",
)  # fmt: skip
_ENV_NAMES = (
    "GLIBC_TUNABLES", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONDEVMODE",
    "PYTHONTRACEMALLOC", "PYTHONMALLOC", "PYTHONPROFILEIMPORTTIME", "PYTHONOPTIMIZE", "PYTHONASYNCIODEBUG",
    "NVIDIA_TF32_OVERRIDE", "HF_HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "TMPDIR",
)  # fmt: skip
SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "CRED", "COOKIE", "AUTH", "SESSION")
_STATUS = (
    "Seccomp", "Speculation_Store_Bypass", "SpeculationIndirectBranch", "NoNewPrivs", "CapEff", "CapBnd", "THP_enabled",
    "Cpus_allowed_list", "Mems_allowed_list",
)  # fmt: skip
# Mount options that change how fast files are read and written; others may name servers and users.
_MOUNT_OPTIONS = (
    "ro", "sync", "dirsync", "noatime", "relatime", "strictatime", "lazytime", "nobarrier", "volatile", "metacopy",
    "data", "commit", "discard", "compress", "size", "huge", "cache", "vers", "rsize", "wsize", "soft", "noac",
    "actimeo", "max_read", "default_permissions", "allow_other", "userxattr", "index", "xino",
)  # fmt: skip
MOST_TOUCHED = 10000
_LIMITS = ("nofile", "memlock", "nproc", "stack")
SOURCES = "software_sources"  # in the work folder: the files that a list of software came from, if there is one
LEFT = "place.json"  # there too: what is around the process, and how those files are now
TOUCHED = "touched.json"  # there too, of a run that is looked at: the files that it opened, mapped or imported
BEGUN = "begun"  # there too, where the device reads along: a pipe that gets a byte just before the command is started


def now_ns():
    """CLOCK_MONOTONIC, also on Python 3.6."""
    if hasattr(time, "monotonic_ns"):
        return time.monotonic_ns()
    return int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)


def launch(argv):
    """Run the command to its end; what it cost, as plain data."""
    start_ns = now_ns()
    pid = _start(argv)
    looked = look_until_ended(pid, argv) if os.environ.get("TARE_STACKS") else {}
    if os.environ.get("TARE_STOPPED"):
        import _thread

        _thread.start_new_thread(stop_until_ended, (pid, argv, os.environ["TARE_STOPPED"].split("/")))
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # until it is reaped, the kernel still tells what it waited for
    end_ns = now_ns()
    schedstat = read("/proc/%d/schedstat" % pid)
    _, status, usage = os.wait4(pid, 0)
    waited = dict(waits(schedstat, usage.ru_utime + usage.ru_stime), **looked)
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)  # there is nobody to stop any more, and its pid may be another's soon
    counted = {
        "start_ns": start_ns,
        "end_ns": end_ns,
        "wall_s": (end_ns - start_ns) / 1e9,
        "cpu_user_s": usage.ru_utime,
        "cpu_system_s": usage.ru_stime,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
        # Never less than this launcher's own: exec keeps the peak of the image that it replaces.
        "max_rss_bytes": usage.ru_maxrss * 1024,
        "exit": 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status),
    }
    return dict(counted, **waited)


def look_until_ended(pid, argv):
    """Seconds by what the innermost process was at, by looking at its first thread: running, or where it waits.

    Now and then also at the files that it has mapped and open: of a program without Python nothing else tells. What
    the command itself names, like the script of an entry point, is over too soon to be seen.
    """
    files = named_files(argv)
    seen, last_ns, filed_ns = {}, now_ns(), 0
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        time.sleep(0.005)
        inner = pid
        while True:
            children = read("/proc/%d/task/%d/children" % (inner, inner)).split()
            if not children:
                break
            inner = int(children[-1])
        name, _, state = read("/proc/%d/stat" % inner).rpartition(")")
        waits_in = read("/proc/%d/wchan" % inner).strip("\0")
        at = "running" if state.strip().startswith("R") else "in " + waits_in if len(waits_in) > 1 else "waiting"
        key, t_ns = "%s %s" % (name.partition("(")[2], at), now_ns()
        seen[key] = seen.get(key, 0.0) + (t_ns - last_ns) / 1e9
        last_ns = t_ns
        if t_ns - filed_ns > 50000000:
            files.update(mapped(inner))
            files.update(opened(inner))
            files.update(named_files(read("/proc/%d/cmdline" % inner).split("\0")[:2]))  # of a script the second
            filed_ns = now_ns()
    if os.environ.get("TARE_MARKS"):
        keep_touched(os.path.dirname(os.environ["TARE_MARKS"]), files)
    return {"sampled": seen}


def named_files(words):
    """Those of these words that name a file, from here or on PATH: as a program is called, which may be a link."""
    folders = [os.getcwd()] + os.environ.get("PATH", "").split(":")
    found = {os.path.join(folder, word) for folder in folders for word in words if word}
    return {path for path in found if os.path.isfile(path)}


def mapped(pid="self"):
    """The files in a process's memory."""
    lines = read("/proc/%s/maps" % pid).splitlines()
    return {words[5] for words in (line.split(None, 5) for line in lines) if len(words) == 6 and words[5][0] == "/"}


def opened(pid):
    """The files that a process has open now."""
    found, folder = set(), "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:  # it ended, or is another user's
        return found
    for name in names:
        try:
            found.add(os.readlink(os.path.join(folder, name)))
        except OSError:  # it was closed meanwhile
            continue
    return found


def keep_touched(folder, paths):
    """Add to the list of files that this trial touched, by their names and real paths; also those not there."""
    import json

    path = os.path.join(folder, TOUCHED)
    known = json.loads(read(path) or '{"files": []}')["files"]
    left_out = ("/proc/", "/sys/", "/dev/", os.path.realpath(folder) + "/")
    named = {os.path.normpath(each) for each in paths if each.startswith("/")}
    kept = {
        each
        for each in named.union(map(os.path.realpath, named))
        if not each.startswith(left_out) and each.isprintable()
    }
    write_whole(path, {"files": sorted(kept.union(known))[:MOST_TOUCHED]})


def stop_until_ended(pid, argv, names):
    """Stop every other process of this trial with such a name, as soon as it is there, to see what it costs.

    An entry point starts the command, or becomes it. A process is spared whose command line is a part of the launched
    one, at its end. The whole one is also that of a shell that the entry point forked.
    """
    parts = [argv[at:] for at in range(1, len(argv))]
    while os.path.exists("/proc/%d" % pid):
        own = stat_of(pid)[0]  # a shell may start others, and become the program
        for other, (name, _) in processes_beside().items():
            line = read("/proc/%d/cmdline" % other).split("\0")[:-1]
            if other != pid and name in names and name != own and line not in parts:
                try:
                    os.kill(other, signal.SIGSTOP)
                except OSError:  # gone, or another user's
                    pass
        time.sleep(0.2)


def processes_beside():
    """Name and CPU seconds of each process of this trial but ours: all of them have its name in their environment."""
    mark = "TARE_NAME=%s" % os.environ.get("TARE_NAME")
    others = [int(each) for each in os.listdir("/proc") if each.isdigit() and int(each) != os.getpid()]
    return {other: stat_of(other) for other in others if mark in read("/proc/%d/environ" % other).split("\0")}


def stat_of(pid):
    """Name and CPU seconds of a process; it may be gone."""
    name, _, words = read("/proc/%d/stat" % pid).rpartition(")")
    spent = words.split()[11:13]
    return name.partition("(")[2], sum(map(int, spent)) / float(os.sysconf("SC_CLK_TCK"))


def left_running():
    """CPU seconds by name of the processes that the command left behind, or that were started before it."""
    found = {}
    for name, cpu_s in processes_beside().values() if "TARE_NAME" in os.environ else ():
        found[name] = found.get(name, 0.0) + cpu_s
    return {name: round(cpu_s, 2) for name, cpu_s in found.items() if cpu_s >= 0.2}


def waits(schedstat, cpu_s):
    """How long a process was ready to run and had no core: its first thread, for others are gone by now.

    Nothing where other threads or children did a part of the work: how long these waited is not known.
    """
    words = [int(word) / 1e9 for word in schedstat.split()]
    return {"run_queue_s": words[1]} if len(words) == 3 and cpu_s - words[0] < 0.1 * cpu_s + 0.01 else {}


def say_begun(folder):
    """Tell who reads along that the command is about to start, while nothing of it can say so in our place."""
    try:
        pipe = os.open(os.path.join(folder, BEGUN), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        os.write(pipe, b".")
    except OSError:
        pass
    finally:
        os.close(pipe)


def _start(argv):
    """Fork and exec; from here on the signals that ask us to stop go to the child."""
    # Held back until there is a child to forward them to: one that comes in between would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    pid = os.fork()
    if pid == 0:
        _become(argv)

    def pass_on(number, frame):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    for number in _FORWARDED:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    return pid


def _become(argv):
    """Turn the forked child into the command, with signals as a fresh program expects them; never returns."""
    code = NOT_FOUND
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two, and exec would pass that on
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        if os.environ.get("TARE_OUTPUT"):  # a file that takes what the command prints, instead of whoever runs it
            os.dup2(os.open(os.environ["TARE_OUTPUT"], os.O_WRONLY | os.O_CREAT, 0o644), 1)
        if os.environ.get("TARE_ULIMITS"):
            code = NOT_EXECUTABLE
            _limit(os.environ["TARE_ULIMITS"])
        os.execvp(argv[0], argv)
    except ValueError as problem:
        os.write(2, "tare: {}\n".format(problem).encode("utf-8", "replace"))
    except OSError as problem:
        code = NOT_EXECUTABLE if isinstance(problem, PermissionError) else NOT_FOUND
        os.write(2, "tare: cannot run {!r}: {}\n".format(argv[0], problem.strerror).encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _limit(words):
    """Limits of processes, like "memlock=65536 nofile=-1", for this one and those that it starts."""
    import resource

    for word in words.split():
        name, value = word.split("=")
        try:
            resource.setrlimit(getattr(resource, "RLIMIT_" + name.upper()), (int(value), int(value)))
        except (ValueError, OSError) as problem:
            raise ValueError(
                "`ulimits: {{{}: {}}}` cannot be set ({}): it is above what this place allows; lower it.".format(
                    name, value, problem
                )
            )


def write_whole(path, data):
    """Write JSON so that a reader sees all of it or nothing."""
    import json

    _write(path, json.dumps(data, allow_nan=False))


def _write(path, text):
    half = path + ".half"
    with open(half, "w") as file:
        file.write(text)
    os.rename(half, path)


def _plain(data):
    """As JSON objects with names, lists, texts, booleans and finite numbers: the module json takes longer."""
    if isinstance(data, dict):
        return "{%s}" % ", ".join("%s: %s" % (quoted(name), _plain(value)) for name, value in data.items())
    if isinstance(data, list):
        return "[%s]" % ", ".join(map(_plain, data))
    if data is None or isinstance(data, bool):
        return {None: "null", True: "true", False: "false"}[data]
    if not (isinstance(data, str) or type(data) in (int, float) and abs(data) < float("inf")):
        raise ValueError("%r cannot be written as plain JSON" % (data,))
    return quoted(data) if isinstance(data, str) else repr(data)


def wait_for_the_others(folder=None):
    """Say that everything is prepared, and wait for the other tenants, if there are some."""
    folder = folder or os.environ.pop("TARE_BARRIER", None)
    if folder is None:
        return
    with open(os.path.join(folder, "ready"), "w"):
        pass
    go = os.path.join(folder, "go")
    while not os.path.exists(go):
        time.sleep(0.001)


# What a process finds around it here, beside the software: its variables, rights and limits, and its file systems.


def surroundings():
    """Everything below in one object."""
    import resource

    system = os.uname()
    return {
        "kernel": system.release,
        "machine": system.machine,
        "env": environment(os.environ),
        "process": process_status(),
        "limits": {name: list(resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper()))) for name in _LIMITS},
        "shm": shared_memory(),
        "cgroup": cgroup_limits(),
        "file_system": file_systems(),
        "mount_options": file_systems(None, None, mount_options),
        "beside": {"looked": "TARE_NAME" in os.environ, "cpu_s": left_running()},
    }


def states(paths):
    """How each file or folder is now; one that changed or was replaced has another state: nobody can set its ctime."""
    found = []
    for path in paths:
        try:
            seen = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append([seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns])
    return found


def shared_memory():
    """The size of /dev/shm, through which workers pass their batches."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    return {"bytes": found.f_frsize * found.f_blocks}


def environment(environ):
    """The variables that change how fast things run; never one whose name speaks of a secret."""
    return {name: value for name, value in sorted(environ.items()) if is_listed(name)}


def is_listed(name):
    """Whether this variable is known to change how fast things run, and is no secret by its name."""
    return (name.startswith(_ENV) or name in _ENV_NAMES) and not is_secret(name)


def is_secret(name):
    """Whether its name speaks of a secret, as jobs.SECRETS does; re is not imported here."""
    return any(word in name.upper().replace("TOKENIZER", "") for word in SECRET)


def process_status(text=None):
    """What the kernel holds against, or for, this process."""
    lines = (read("/proc/self/status") if text is None else text).splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs if name in _STATUS}


def cgroup_limits(folders=None):
    """CPU quota, weight, memory limits and I/O limit of these groups (controller -> folders), by default of our own;
    what is unlimited is left out.

    So is the period of the quota where it is 0.1 s, as nearly everywhere.
    """
    folders = _cgroup_folders() if folders is None else folders
    limits = dict(
        _cpu_quota(folders),
        cpu_shares=_cpu_shares(folders),
        memory_limit_bytes=_bytes(folders, "memory.max", "memory.limit_in_bytes"),
        memory_high_bytes=_bytes(folders, "memory.high", None),
        swap_limit_bytes=_bytes(folders, "memory.swap.max", None),
        io_limit=_io_limit(folders),
    )
    return {name: value for name, value in limits.items() if value is not None}


def mount_options(words):
    """Those of a line of mountinfo that cost or save time, of the mount and of its file system."""
    given = words[5].split(",") + words[-1].split(",")
    return " ".join(sorted({each for each in given if each.partition("=")[0] in _MOUNT_OPTIONS}))


def looked_at(argv=(), environ=os.environ, folder=None):
    """The folders whose file systems matter: where it works, for temporary files, of Python's modules, of its data."""
    work = os.getcwd() if folder is None else folder
    found = {"tmp": environ.get("TMPDIR") or "/tmp", "work": work, "python": os.path.dirname(os.__file__)}
    words = [word.partition("=")[2] if word.startswith("-") else word for word in argv[1:]]
    data = [word for word in words if word.startswith("/") and not word.endswith((".py", ".sh"))]
    return dict(found, data=data[0]) if data else found


def file_systems(mounts=None, folders=None, told=None):
    """What is told of the file system under each of these real folders: by default its kind, since one may be memory or
    a network.
    """
    if folders is None:
        folders = {name: os.path.realpath(folder) for name, folder in looked_at(sys.argv[3:]).items()}
    told = told or _kind
    text = read("/proc/self/mountinfo") if mounts is None else mounts
    known = [line.split() for line in text.splitlines() if " - " in line]
    found = {}
    for name, folder in folders.items():
        path = os.path.normpath(folder) + "/"
        # The longest mount point that the path lies under; of several on one point the last covers the others.
        held = [words for words in known if path.startswith(words[4].rstrip("/") + "/")]
        if held and path != "//":
            found[name] = told(max(enumerate(held), key=lambda each: (len(each[1][4]), each[0]))[1])
    return found


def _kind(words):
    return words[words.index("-") + 1]


def _cgroup_folders():
    """Controller -> the folders that may hold its files: that of this process, and the root of a cgroup namespace."""
    folders = {}
    for line in read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            root = "/sys/fs/cgroup" + ("/" + controllers if controllers else "")
            folders[controller] = [root + path.rstrip("/"), root]
    return folders


def _cpu_quota(folders):
    for folder in folders.get("", []):
        words = read(folder + "/cpu.max").split()
        if len(words) == 2:
            return {} if words[0] == "max" else _in_periods(int(words[0]), int(words[1]))
    for folder in folders.get("cpu", []):
        quota, period = read(folder + "/cpu.cfs_quota_us"), read(folder + "/cpu.cfs_period_us")
        if quota and period:
            return _in_periods(int(quota), int(period)) if int(quota) > 0 else {}
    return {}


def _in_periods(quota_us, period_us):
    found = {"cpu_quota_cores": quota_us / period_us}
    return found if period_us == 100000 else dict(found, cpu_period_s=period_us / 1e6)


def _cpu_shares(folders):
    """The weight on the scale of version 1, where 1024 is usual; version 2 has 100."""
    for folder in folders.get("", []):
        text = read(folder + "/cpu.weight").strip()
        if text.isdigit():
            return round(int(text) * 10.24)
    for folder in folders.get("cpu", []):
        text = read(folder + "/cpu.shares").strip()
        if text.isdigit():
            return int(text)
    return None


def _bytes(folders, file, first_version):
    """A limit of memory; None where there is none."""
    for folder in folders.get("", []):
        text = read(folder + "/" + file).strip()
        if text:
            return None if text == "max" else int(text)
    for folder in folders.get("memory", []) if first_version else []:
        text = read(folder + "/" + first_version).strip()
        if text:
            return int(text) if int(text) < 1 << 60 else None  # v1 says "unlimited" with a huge number
    return None


def _io_limit(folders):
    """Rates of reads and writes, of the disks without their numbers; None where there are none."""
    for folder in folders.get("", []):
        words = [word for line in read(folder + "/io.max").splitlines() for word in line.split()[1:]]
        return " ".join(sorted(word for word in words if not word.endswith("=max"))) or None
    for folder in folders.get("blkio", []):
        names = ("read_bps", "write_bps", "read_iops", "write_iops")
        lines = [(name, read("%s/blkio.throttle.%s_device" % (folder, name)).split()) for name in names]
        return " ".join("%s=%s" % (name, words[1]) for name, words in lines if len(words) > 1) or None
    return None


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def main(arguments):
    if len(arguments) < 3 or arguments[1] != "--":
        sys.stderr.write("usage: python launch.py RESULT_JSON -- COMMAND...\n")
        return 2
    if os.environ.pop("TARE_BARRIER_AT", None) == "launch":
        wait_for_the_others()
    folder = os.path.dirname(os.path.abspath(arguments[0]))
    say_begun(folder)
    result = launch(arguments[2:])
    _write(arguments[0], _plain(result))
    paths = read(os.path.join(folder, SOURCES))
    if paths:  # whoever kept the list of software of an earlier trial: whether it still holds, and what is not in it
        try:
            found = dict(surroundings(), sources=states(paths.split("\n")))
            _write(os.path.join(folder, LEFT), _plain(found))
        except Exception:  # then the software is listed again; the command's own end is what counts
            pass
    return result["exit"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
