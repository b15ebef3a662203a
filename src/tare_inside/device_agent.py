"""What is copied to a device of a fleet: looks at it, starts a trial that outlives the connection, hands records over.

It is asked once a connection: a line of JSON on standard input, and on standard output a line `tare-agent`, a line of
JSON, and where records were asked for a tar stream. It runs on nothing but the standard library of Python 3.6 and
newer. While a trial runs it sleeps on a lock that the trial holds: it costs the device some memory, and no time.
"""

import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time

HELLO = b"tare-agent\n"
ENGINE_ANSWERS_WITHIN_S = 120
TAIL_BYTES = 2000
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def state_dir():
    """As `tare.parts.state` has it: the engine on this device keeps its things there."""
    if os.environ.get("TARE_STATE"):
        return os.path.abspath(os.environ["TARE_STATE"])
    if os.geteuid() == 0:
        return "/var/lib/tare"
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "tare")


def lock_dir():
    if os.environ.get("TARE_LOCK_DIR"):
        return os.path.abspath(os.environ["TARE_LOCK_DIR"])
    return "/run/lock/tare" if os.geteuid() == 0 else state_dir()


def plain(name):
    """A name that is safe as a folder's: it came from elsewhere."""
    if not _FOLDER.fullmatch(name):
        raise ValueError("%r is no name for a folder" % name)
    return name


def claims_dir():
    return os.path.join(state_dir(), "fleet", "claims")


def store_dir(name):
    return os.path.join(state_dir(), "fleet", "stores", plain(name))


# What is asked


def do_look(request):
    """How the device stands, as far as the standard library can say."""
    os.makedirs(state_dir(), mode=0o700, exist_ok=True)
    disk = shutil.disk_usage(state_dir())
    said = {
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
    if request.get("abilities") and said["engine"]["code"] == 0:
        said["abilities"] = run_engine(request["engine"], ["check", "--json"], "")
    said["time_s"] = time.time()  # last: nothing slow lies between this and the answer
    return said, None


def do_clock(request):
    """The time for each line that comes: what it takes to get here and to start is then in no answer."""
    out = sys.stdout.buffer
    out.write(HELLO)
    out.flush()
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
    begun = begin(folder, request)
    wait_for(folder)
    said = ending(folder)
    said["begun"] = begun
    return said, new_records(request)


def do_collect(request):
    """Wait for trials that a controller began and did not see the end of; hand over what it has not got."""
    endings = []
    for claim in claims_of(request["store"]):
        folder = os.path.join(claims_dir(), claim)
        wait_for(folder)
        said = ending(folder)
        said["claim"] = claim
        endings.append(said)
        shutil.rmtree(folder, ignore_errors=True)
    return {"endings": endings}, new_records(request)


# Trials


def begin(folder, request):
    """Whether it was begun by us. The claim has its name, and its lock is held, before anything runs."""
    if os.path.isdir(folder):
        return False
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    draft = "%s.%d.tmp" % (folder, os.getpid())
    os.mkdir(draft, 0o700)
    lock = os.open(os.path.join(draft, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with open(os.path.join(draft, "request.json"), "w") as file:
        json.dump(request, file)
    try:
        os.rename(draft, folder)
    except OSError:  # a twin of ours was faster: it is the one that runs
        shutil.rmtree(draft, ignore_errors=True)
        os.close(lock)
        return False
    try:
        start(folder, request["engine"], lock)
    finally:
        os.close(lock)
    return True


def start(folder, engine, lock):
    """The trial in a session of its own, so that it does not end with the connection."""
    with open(os.path.join(folder, "out"), "wb") as out, open(os.path.join(folder, "err"), "wb") as err:
        subprocess.Popen(
            [engine, "-P", "-m", "tare.cli", "fleet", "trial", folder, str(lock)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd="/",
            pass_fds=(lock,),
            start_new_session=True,
        )


def wait_for(folder):
    """Until nobody holds the claim: the trial has ended, however it did."""
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)


def is_held(folder):
    """Whether a trial runs under this claim; asked of the kernel's list, so that nobody's lock is disturbed."""
    try:
        return _locked(os.stat(os.path.join(folder, "lock")))
    except OSError:
        return False


def ending(folder):
    try:
        with open(os.path.join(folder, "result.json")) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {"code": None, "text": "it ended without a word. %s" % tail(os.path.join(folder, "err"))}


def tail(path):
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def claims_of(store):
    """The claims of one controller's store."""
    found = []
    for name in sorted(os.listdir(claims_dir())) if os.path.isdir(claims_dir()) else []:
        try:
            with open(os.path.join(claims_dir(), name, "request.json")) as file:
                if json.load(file)["store"] == store and not name.endswith(".tmp"):
                    found.append(name)
        except (OSError, ValueError, KeyError):
            continue
    return found


def held_claims():
    names = sorted(os.listdir(claims_dir())) if os.path.isdir(claims_dir()) else []
    return [name for name in names if is_held(os.path.join(claims_dir(), name))]


# Records


def new_records(request):
    """The sealed trials of a store that the controller has not got, as paths; a sealed trial never changes."""
    folder = os.path.join(store_dir(request["store"]), "trials")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    have = set(request["have"])
    return [os.path.join(folder, name) for name in names if _FOLDER.fullmatch(name) and name not in have]


def send_records(paths, out):
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for path in paths:
            archive.add(path, arcname=os.path.basename(path))


# The device


def owner_now():
    """Who holds the device's lock: what the holder said of itself, or None."""
    try:
        names = [name for name in sorted(os.listdir(lock_dir())) if name.endswith(".lock")]
    except OSError:
        return None
    for name in names:
        path = os.path.join(lock_dir(), name)
        try:
            if _locked(os.stat(path)):
                with open(path) as file:
                    return json.load(file)
        except (OSError, ValueError):
            continue
    return None


def _locked(status):
    """Whether someone holds a lock on this file."""
    wanted = "%02x:%02x:%d" % (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    with open("/proc/locks") as file:
        return any(wanted in line.split() and "->" not in line for line in file)


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
    try:
        said, records = ASKED[request["do"]](request)
    except (OSError, ValueError, KeyError) as error:
        said, records = {"error": "%s: %s" % (type(error).__name__, error)}, None
    if said is None:
        return
    said["sends"] = None if records is None else len(records)
    out.write(HELLO + json.dumps(said).encode("utf-8") + b"\n")
    if records is not None:
        send_records(records, out)
    out.flush()


if __name__ == "__main__":
    main()
