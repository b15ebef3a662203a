"""Runs a command as a child and writes down what it cost: `python launch.py RESULT_JSON -- COMMAND...`.

It stands between the platform and the workload so that start, end and resource use are taken inside, the same way
everywhere. It adds one process that sleeps in `wait4`. Exit code: the command's own, or 128 + the signal.

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


def now_ns():
    """CLOCK_MONOTONIC, also on Python 3.6."""
    if hasattr(time, "monotonic_ns"):
        return time.monotonic_ns()
    return int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)


def launch(argv):
    """Run the command to its end; what it cost, as plain data."""
    start_ns = now_ns()
    pid = _start(argv)
    _, status, usage = os.wait4(pid, 0)
    end_ns = now_ns()
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)  # there is nobody to stop any more, and its pid may be another's soon
    return {
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


def _start(argv):
    """Fork and exec; from here on the signals that ask us to stop go to the child."""
    # Held back until there is a child to forward them to: one that comes in between would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    pid = os.fork()
    if pid == 0:
        _become(argv)
    for number in _FORWARDED:
        signal.signal(number, lambda number, frame: _pass_on(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    return pid


def _pass_on(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


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
    """As JSON what is made of objects with names, lists, texts and finite numbers: the module json takes longer."""
    if isinstance(data, dict):
        return "{%s}" % ", ".join("%s: %s" % (quoted(name), _plain(value)) for name, value in data.items())
    if isinstance(data, list):
        return "[%s]" % ", ".join(map(_plain, data))
    if not (data is None or isinstance(data, str) or type(data) in (int, float) and abs(data) < float("inf")):
        raise ValueError("%r cannot be written as plain JSON" % (data,))
    return "null" if data is None else quoted(data) if isinstance(data, str) else repr(data)


def _look_around(folder):
    """For whoever kept the list of software of an earlier trial: whether it still holds, and what is not in it."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from tare_inside import place

    paths = place.read(os.path.join(folder, place.SOURCES))
    if paths:
        found = dict(place.gather(), sources=place.states(paths.split("\n")))
        _write(os.path.join(folder, place.LEFT), _plain(found))


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


def main(arguments):
    if len(arguments) < 3 or arguments[1] != "--":
        sys.stderr.write("usage: python launch.py RESULT_JSON -- COMMAND...\n")
        return 2
    if os.environ.pop("TARE_BARRIER_AT", None) == "launch":
        wait_for_the_others()
    result = launch(arguments[2:])
    _write(arguments[0], _plain(result))
    folder = os.path.dirname(os.path.abspath(arguments[0]))
    if os.path.exists(os.path.join(folder, "software_sources")):
        try:
            _look_around(folder)
        except Exception:  # then the software is listed again; the command's own end is what counts
            pass
    return result["exit"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
