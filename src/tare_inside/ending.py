"""Ends a script before its time, as the study wants it (`--steps`, `--minutes`), and as cleanly as its own end.

The variable TARE_ATTACH holds a JSON object; either key may be absent, and without the variable no script is ended:

    {"stop_after_steps": 200, "stop_after_s": 180.0}

`stop_after_steps`: when so many steps are over, as attach.py marks them (the first ones count too). `stop_after_s`:
with the first step that ends so many seconds after the first one began. At the script's next call for a batch, a
backward pass or an optimiser's step SystemExit(0) is raised in it: its `finally` blocks and exit handlers run. A script
that catches that and trains on, or that trains in another thread than the main one, has its exit handlers run and is
ended.

Each process that trains is ended. Processes that train together end with the same step: they count alike, and if a time
is to end them, the first rank leaves the number of the last step in a file beside the marks, some steps ahead.
"""

import json
import os
import sys

SETTINGS = "TARE_ATTACH"
AHEAD = 8  # steps: no rank is so far before the first one, for they wait for each other in every step


def from_environment(folder):
    """What the variable asks for, None where it asks for nothing; ValueError where it cannot be understood."""
    text = os.environ.get(SETTINGS)
    if not text:
        return None
    settings = json.loads(text)
    steps, seconds = settings.get("stop_after_steps"), settings.get("stop_after_s")
    for value in (steps, seconds):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
            raise ValueError("{}: not a number above 0: {!r}".format(SETTINGS, value))
    return None if steps is None and seconds is None else Ending(folder, steps, seconds)


class Ending(object):
    """Knows when a script is to be ended."""

    def __init__(self, folder, steps=None, seconds=None):
        self._steps, self._seconds = steps, seconds
        self._agreed_at = os.path.join(folder, "last-step")
        self._together = None  # do several processes train together, and is this the first of them?
        self._began_ns = None
        self.over = False
        self.reported = None  # what is to be recorded of it

    def stepped(self, count, begin_ns, end_ns):
        """So many steps are over; the last was from `begin_ns` to `end_ns`."""
        if self._began_ns is None or count == 1:
            self._began_ns = begin_ns
        passed_s = (end_ns - self._began_ns) / 1e9
        if self._steps is not None and count >= self._steps:
            by = "steps"
        elif self._seconds is not None and self._is_late(count, passed_s):
            by = "seconds"
        else:
            return
        self.over, self.reported = True, {"by": by, "steps": count, "after_s": passed_s}

    def _is_late(self, count, passed_s):
        if self._together is None:
            self._together = _together()
        several, first = self._together
        if not several:
            return passed_s >= self._seconds
        try:
            with open(self._agreed_at) as file:
                return count >= int(file.read())
        except (OSError, ValueError):
            if first and passed_s >= self._seconds:
                with open(self._agreed_at + ".half", "w") as file:
                    file.write(str(count + AHEAD))
                os.rename(self._agreed_at + ".half", self._agreed_at)
            return False


def _together():
    """(are there several, is this the first of them)"""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return False, True
    return distributed.get_world_size() > 1, distributed.get_rank() == 0


def leave():
    """End the script from where it stands."""
    import threading

    if threading.current_thread() is not threading.main_thread():
        leave_at_once()  # SystemExit would end this thread alone
    raise SystemExit(0)


def leave_at_once():
    """What Python does at its end, here and now."""
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # closed, or nobody listens
    os._exit(0)
