"""What is copied to a device of a fleet: looks at it, starts a trial that outlives the connection, hands records over.

It is asked once a connection: a line of JSON on standard input, and on standard output a line `tare-agent`, which comes
at once, a line of JSON, and where records were asked for a tar stream. It runs on nothing but the standard library of
Python 3.6 and newer. While a trial runs it sleeps on a lock that the trial holds: it costs the device some memory, and
no time.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time

from tare_inside.agents import device_trials
from tare_inside.agents.device_trials import FOLDER_NAME, claims_dir, owner_now, plain, state_dir, store_dir

HELLO = b"tare-agent\n"
ENGINE_ANSWERS_WITHIN_S = 120


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
        "holding": device_trials.held_claims(),
        "engine": run_engine(request["engine"], ["--version"], ""),
    }
    if request.get("abilities") and reported["engine"]["code"] == 0:
        reported["abilities"] = run_engine(request["engine"], ["check", "--json"], "")
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
    alive = device_trials.earlier_try(request)
    if alive is not None:  # two of them would be beside each other
        return dict(device_trials.still_lives(alive), begun=False), new_records(request)
    begun = device_trials.begin(folder, request)
    return dict(device_trials.awaited(folder), begun=begun), new_records(request)


def do_collect(request):
    """Wait for trials that a controller began and did not see the end of; hand over what it has not got."""
    endings = []
    for claim in device_trials.claims_of(request["store"]):
        folder = os.path.join(claims_dir(), claim)
        reported = dict(device_trials.awaited(folder), claim=claim)
        endings.append(reported)
        if reported["code"] != device_trials.STILL_LIVES:
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
    device_trials.sweep()
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
