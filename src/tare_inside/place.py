"""What a process finds around it here, beside the software: its variables, rights and limits, and its file systems.

Read once per trial by the launcher, which starts without the site module: little is imported and nothing compiled. It
also looks whether the files that an earlier trial's list of software came from are as they were.
"""

import os

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
_STATUS = ("Seccomp", "Speculation_Store_Bypass", "NoNewPrivs", "CapEff", "Cpus_allowed_list", "Mems_allowed_list")
SOURCES = "software_sources"  # in the work folder: the files that a list of software came from, if there is one
LEFT = "place.json"  # there too: what is around the process, and how those files are now


def gather():
    """Everything below in one object."""
    import resource

    system = os.uname()
    return {
        "kernel": system.release,
        "machine": system.machine,
        "env": environment(os.environ),
        "process": process_status(),
        "limits": {
            "nofile": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
            "memlock": list(resource.getrlimit(resource.RLIMIT_MEMLOCK)),
        },
        "shm": shared_memory(),
        "cgroup": cgroup_limits(),
        "file_system": file_systems(),
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
    return {
        name: value
        for name, value in sorted(environ.items())
        if (name.startswith(_ENV) or name in _ENV_NAMES) and not any(word in name.upper() for word in SECRET)
    }


def process_status(text=None):
    """What the kernel holds against, or for, this process."""
    lines = (read("/proc/self/status") if text is None else text).splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs if name in _STATUS}


def cgroup_limits():
    """CPU quota and memory limit as seen from inside, in cores and bytes; what is unlimited is left out.

    So is the period of the quota where it is 0.1 s, as nearly everywhere.
    """
    folders = _cgroup_folders()
    limits = dict(_cpu_quota(folders), memory_limit_bytes=_memory_limit(folders))
    return {name: value for name, value in limits.items() if value is not None}


def file_systems(mounts=None, folders=None):
    """The kind of file system under the folder for temporary files and the working folder: one may be memory."""
    folders = folders or {"tmp": os.environ.get("TMPDIR") or "/tmp", "work": os.getcwd()}
    text = read("/proc/self/mountinfo") if mounts is None else mounts
    known = [line.split() for line in text.splitlines() if " - " in line]
    found = {}
    for name, folder in folders.items():
        path = os.path.realpath(folder) + "/"
        # The longest mount point that the path lies under; of several on one point the last covers the others.
        held = [words for words in known if path.startswith(words[4].rstrip("/") + "/")]
        if held and path != "//":
            deepest = max(enumerate(held), key=lambda each: (len(each[1][4]), each[0]))[1]
            found[name] = deepest[deepest.index("-") + 1]
    return found


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


def _memory_limit(folders):
    for folder in folders.get("", []):
        text = read(folder + "/memory.max").strip()
        if text:
            return None if text == "max" else int(text)
    for folder in folders.get("memory", []):
        text = read(folder + "/memory.limit_in_bytes").strip()
        if text:
            return int(text) if int(text) < 1 << 62 else None  # v1 says "unlimited" with a huge number
    return None


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except (OSError, ValueError):
        return ""
