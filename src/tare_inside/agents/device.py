"""What is copied to a device of a fleet: looks at it, starts a trial that outlives the connection, hands records over.

Each trial is claimed once and begun once, and waited for by whoever asks, however often.
It is asked once a connection: a line of JSON on standard input, and on standard output a line `tare-agent`, which comes
at once, a line of JSON, and where records were asked for a tar stream. It runs on nothing but the standard library of
Python 3.6 and newer. While a trial runs it sleeps on a lock that the trial holds: it costs the device some memory, and
no time.
"""

import contextlib
import fcntl
import json
import os
import platform
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

HELLO = b"tare-agent\n"
ENGINE_ANSWERS_WITHIN_S = 120
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
STILL_LIVES = 124  # the code of a trial that has not ended when it had to; with a code it is not tried again
TAIL_BYTES = 2000
_RUNS = 3  # of one trial: one that is not valid is run twice more
_BESIDE_S = 6600  # it may make a data set, and fill a disk with it; less than the controller waits (`fleet.running`)
DRAFT = ".tmp"
OLD_S = 86400
_COPIES = ("device_agent-", "inside-")  # of either kind of agent, with the drafts of them
_MOST_WORDS = 200  # characters of a command line


# Folders and locks


def state_dir():
    """The engine on this device keeps its things there."""
    if os.environ.get("TARE_STATE"):
        return os.path.abspath(os.environ["TARE_STATE"])
    if os.geteuid() == 0:
        return "/var/lib/tare"
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "tare")


def lock_dir():
    if os.environ.get("TARE_LOCK_DIR"):
        return os.path.abspath(os.environ["TARE_LOCK_DIR"])
    return "/run/tare/locks" if os.geteuid() == 0 else state_dir()


def shared_folder():
    """The folder whose lock is between the runs of different users; None where these locks are set apart."""
    if os.environ.get("TARE_LOCK_DIR"):
        return None
    found = [path for path in ("/run/lock", "/run", "/") if os.path.isdir(path) and os.access(path, os.R_OK)]
    return found[0] if found else None


def copies_dir():
    """Where a controller puts what it sends here."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tare")


def claims_dir():
    return os.path.join(state_dir(), "fleet", "claims")


def store_dir(name):
    return os.path.join(state_dir(), "fleet", "stores", plain(name))


def plain(name):
    """A name that is safe as a folder's: it came from elsewhere."""
    if not FOLDER_NAME.fullmatch(name):
        raise ValueError("%r is no name for a folder" % name)
    return name


def owner_now():
    """What the holder of the device's lock said of itself, or what can be seen of it; None where nobody has it."""
    return _of_this_user() or _of_another_user()


def holder(path):
    """The process that holds this file, or folder, alone; None where nobody does, or nobody that we can see."""
    status = os.stat(path)
    wanted = "%02x:%02x:%d" % (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    with open("/proc/locks") as file:
        for words in (line.split() for line in file):
            if wanted in words and "FLOCK" in words and "WRITE" in words and "->" not in words:
                return int(words[words.index(wanted) - 1])
    return None


def _of_this_user():
    """By the lock files, which say more; each user has those of the own runs."""
    try:
        names = [name for name in sorted(os.listdir(lock_dir())) if name.endswith(".lock")]
    except OSError:
        return None
    for name in names:
        path = os.path.join(lock_dir(), name)
        try:
            if holder(path) is not None:
                with open(path) as file:
                    return json.load(file)
        except (OSError, ValueError):
            continue
    return None


def _of_another_user():
    """By the folder that the runs of all users lock (`tare.base.processes`)."""
    place = shared_folder()
    try:
        pid = None if place is None else holder(place)
    except OSError:
        return None
    return None if pid is None else dict(_looks(pid), pid=pid)


def _looks(pid):
    """Whose process it is and what it was called with, as far as that is shown to us."""
    reported = {}
    try:
        uid = os.stat("/proc/%d" % pid).st_uid
        reported["user"] = str(uid)
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read().decode("utf-8", "replace").replace("\0", " ").strip()
        if words:
            reported["run"] = words[:_MOST_WORDS]
        reported["user"] = pwd.getpwuid(uid).pw_name
    except (OSError, KeyError):
        pass
    return reported


# Trials


class Overdue(Exception):
    """The trial was waited for long enough."""


def begin(folder, request):
    """Whether it was begun by us. The claim has its name, and its lock is held, before anything runs."""
    if os.path.isdir(folder):
        return False
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    draft = "%s.%d%s" % (folder, os.getpid(), DRAFT)
    os.mkdir(draft, 0o700)
    try:
        lock = os.open(os.path.join(draft, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _named(draft, folder, request) and _started(folder, request["engine"], lock)
        finally:
            os.close(lock)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # it has its name by now, unless something went wrong


def _named(draft, folder, request):
    """Give the claim its name, so that it outlives a power cut; False if another of our processes was faster."""
    with open(os.path.join(draft, "request.json"), "w") as file:
        json.dump(dict(request, begun_s=time.monotonic()), file)
        file.flush()
        os.fsync(file.fileno())
    _sync(draft)
    try:
        os.rename(draft, folder)
    except OSError:
        if not os.path.isdir(folder):
            raise
        return False
    _sync(os.path.dirname(folder))
    return True


def _sync(folder):
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _started(folder, engine, lock):
    """The trial in a session of its own, so that it does not end with the connection."""
    with open(os.path.join(folder, "out"), "wb") as out, open(os.path.join(folder, "err"), "wb") as err:
        child = subprocess.Popen(
            [engine, "-P", "-m", "tare.cli", "device", "fleet", "trial", folder, str(lock)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd="/",
            pass_fds=(lock,),
            start_new_session=True,
        )
    with contextlib.suppress(OSError), open(os.path.join(folder, "pid"), "w") as file:
        file.write("%d\n" % child.pid)
    return True


def awaited(folder):
    """How the trial ended, whoever began it; one that lives on long after its limit is said to do so."""
    return ending(folder) if _wait_for(folder, _left_s(folder)) else still_lives(folder)


def _wait_for(folder, within_s):
    """Whether nobody holds the claim any more: the trial has ended, however it did. It costs no time to wait."""
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CLOEXEC)
    try:
        if within_s is None:
            fcntl.flock(lock, fcntl.LOCK_SH)
        elif within_s > 0:
            _sleep_on(lock, within_s)
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(lock)


def _sleep_on(lock, within_s):
    def give_up(number, frame):
        raise Overdue

    try:
        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, within_s)
        fcntl.flock(lock, fcntl.LOCK_SH)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Overdue:
        pass


def _left_s(folder):
    """Until a trial has had all the time that it may take; None where nobody said how long that is."""
    requested = _request(folder)
    if "limit_s" not in requested:
        return None
    allowed_s = _RUNS * requested["limit_s"] + _BESIDE_S + requested.get("patience_s", 0)
    return allowed_s - (time.monotonic() - requested.get("begun_s", time.monotonic()))


def earlier_try(request):
    """The claim of another try at the same trial whose process still lives; None where there is none."""
    for name in _names():
        folder = os.path.join(claims_dir(), name)
        is_other = name.startswith(request["trial"] + ".") and name != request["claim"] and not name.endswith(DRAFT)
        if is_other and _request(folder).get("store") == request["store"] and _is_locked(folder):
            return folder
    return None


def _is_locked(folder):
    try:
        return not _wait_for(folder, 0)
    except OSError:
        return False


def still_lives(folder):
    """What is said of a trial that nobody can wait for any longer."""
    try:
        with open(os.path.join(folder, "pid")) as file:
            pid = file.read().strip()
    except OSError:
        pid = ""
    who = "pid %s" % pid if pid else "it has not named itself"
    how = " `ps -o stat,wchan,args -p %s` there shows what it does, `kill -9 %s` ends it." % (pid, pid) if pid else ""
    text = "the trial has not ended long after it had to, and its process still lives there (%s).%s" % (who, how)
    return {"code": STILL_LIVES, "text": text}


def ending(folder):
    try:
        with open(os.path.join(folder, "result.json")) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {"code": None, "text": "it ended without a message. %s" % _tail(os.path.join(folder, "err"))}


def _tail(path):
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def claims_of(store):
    """The claims of one controller's store."""
    folders = [(name, os.path.join(claims_dir(), name)) for name in _names() if not name.endswith(DRAFT)]
    return [name for name, folder in folders if _request(folder).get("store") == store]


def held_claims():
    """Those under which a trial runs."""
    return [name for name in _names() if is_held(os.path.join(claims_dir(), name))]


def is_held(folder):
    try:
        return holder(os.path.join(folder, "lock")) is not None
    except OSError:
        return False


def _names():
    return sorted(os.listdir(claims_dir())) if os.path.isdir(claims_dir()) else []


def _request(folder):
    """What was asked for under this claim; nothing where that cannot be read."""
    try:
        with open(os.path.join(folder, "request.json")) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def sweep():
    """Remove copies of ours that nobody has used for a day, and drafts of claims that nobody is at."""
    for path in _below(copies_dir(), lambda name: name.startswith(_COPIES)):
        with contextlib.suppress(OSError):
            os.remove(path)  # a copy that is used is touched by whoever starts it
    for path in _below(claims_dir(), lambda name: name.endswith(DRAFT)):
        if not is_held(path):
            shutil.rmtree(path, ignore_errors=True)


def _below(folder, is_ours):
    """What there is of ours that is old."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if is_ours(name) and time.time() - os.lstat(path).st_mtime > OLD_S:
                found.append(path)
    return found


# What is asked


def do_look(request):
    """How the device stands, as far as the standard library can say."""
    os.makedirs(state_dir(), mode=0o700, exist_ok=True)
    disk = shutil.disk_usage(state_dir())
    reported = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "root": os.geteuid() == 0,
        "free_bytes": disk.free,
        "state": state_dir(),
        "owner": owner_now(),
        "holding": held_claims(),
        "engine": run_engine(request["engine"], ["--version"], ""),
    }
    if request.get("abilities") and reported["engine"]["code"] == 0:
        reported["abilities"] = run_engine(request["engine"], ["doctor", "--json"], "")
    reported["time_s"] = time.time()  # last: nothing slow lies between this and the answer
    return reported, None


def do_clock(request):
    """The time for each line that comes: what it takes to get here and to start is then in no answer."""
    out = sys.stdout.buffer
    while sys.stdin.buffer.readline():
        out.write(b"%.9f\n" % time.time())
        out.flush()
    return None, None


def do_engine(request):
    """One short command of the engine on this device."""
    return run_engine(request["engine"], request["arguments"], request.get("stdin", "")), None


def do_run(request):
    """Start the trial, or find it started already; wait until it has ended; say how, and hand over what is new."""
    folder = os.path.join(claims_dir(), plain(request["claim"]))
    alive = earlier_try(request)
    if alive is not None:  # two of them would be beside each other
        return dict(still_lives(alive), begun=False), new_records(request)
    begun = begin(folder, request)
    return dict(awaited(folder), begun=begun), new_records(request)


def do_collect(request):
    """Wait for trials that a controller began and did not see the end of; hand over what it has not got."""
    endings = []
    for claim in claims_of(request["store"]):
        folder = os.path.join(claims_dir(), claim)
        reported = dict(awaited(folder), claim=claim)
        endings.append(reported)
        if reported["code"] != STILL_LIVES:
            shutil.rmtree(folder, ignore_errors=True)
    return {"endings": endings}, new_records(request)


# Records


def new_records(request):
    """The sealed trials of a store that the controller has not got, as paths; a sealed trial never changes."""
    folder = os.path.join(store_dir(request["store"]), "trials")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    have, begins = set(request["have"]), asked_for(request)
    new = [name for name in names if FOLDER_NAME.fullmatch(name) and name.startswith(begins) and name not in have]
    return [os.path.join(folder, name) for name in new]


def asked_for(request):
    """How the names of the records begin that an answer brings: who runs a trial gets its attempts, not all others."""
    return request["trial"] + "." if request["do"] == "run" else ""


def send_records(paths, out):
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for path in paths:
            archive.add(path, arcname=os.path.basename(path))


# The engine


def run_engine(engine, arguments, stdin):
    """The engine's own command line: how it ended and what it said."""
    try:
        child = subprocess.Popen(
            [engine, "-P", "-m", "tare.cli"] + list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
        )
    except OSError as error:
        return {"code": 127, "out": "", "err": "%s: %s" % (engine, error.strerror)}
    try:
        out, err = child.communicate(stdin.encode("utf-8"), timeout=ENGINE_ANSWERS_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return {"code": 124, "out": "", "err": "no answer within %d s" % ENGINE_ANSWERS_WITHIN_S}
    return {"code": child.returncode, "out": out.decode("utf-8", "replace"), "err": err.decode("utf-8", "replace")}


ASKED = {"look": do_look, "clock": do_clock, "engine": do_engine, "run": do_run, "collect": do_collect}


def main():
    out = sys.stdout.buffer
    request = json.loads(sys.stdin.buffer.readline().decode("utf-8"))
    out.write(HELLO)  # before anything that takes time: whoever asks knows then that the line holds
    out.flush()
    sweep()
    try:
        reported, records = ASKED[request["do"]](request)
    except (OSError, ValueError, KeyError) as error:
        reported, records = {"error": "%s: %s" % (type(error).__name__, error)}, None
    if reported is None:
        return
    reported["sends"] = None if records is None else len(records)
    out.write(json.dumps(reported).encode("utf-8") + b"\n")
    if records is not None:
        send_records(records, out)
    out.flush()
