"""Where a Python program spends its time, by looking at its first thread again and again: for runs that are not timed.

What is left behind: seconds by function, in itself and with all that it called. A look that comes late, because
something held the interpreter, counts for all the time since the one before. And the files that it opened or wanted to
open, and those of its modules.
"""

import atexit
import json
import os
import sys
import threading
import time

from tare_inside import launch

LEFT = "stacks.json"  # in the work folder
CPU = "cpu_s"  # of the process; all else are functions
BEFORE = "the interpreter's start, with *.pth files and what ran before it"
_EVERY_S = 0.005
_KEPT_EVERY_S = 1.0
_MOST = 400


def start(folder):
    """Begin. Of several interpreters the file is that of the one which used the CPU most: a launcher only waits."""
    stacks = Stacks(folder, threading.main_thread().ident)
    if hasattr(sys, "addaudithook"):  # from Python 3.8 on
        sys.addaudithook(stacks.note_opened)
    thread = threading.Thread(target=stacks.run, name="tare-stacks")
    thread.daemon = True
    thread.start()
    atexit.register(stacks.end, thread)


class Stacks(object):
    """Looks at one thread, and adds up."""

    def __init__(self, folder, ident):
        self._folder, self._path = folder, os.path.join(folder, LEFT)
        self._ident, self._pid = ident, os.getpid()
        self._over = threading.Event()
        self._opened, self._kept = set(), 0
        self._names = {}
        self.own_s, self.whole_s = {}, {BEFORE: age_s()}

    def run(self):
        last_s = kept_s = time.perf_counter()
        while not self._over.wait(_EVERY_S):
            now_s = time.perf_counter()
            self.look(sys._current_frames().get(self._ident), now_s - last_s)
            last_s = now_s
            if now_s - kept_s > _KEPT_EVERY_S:
                self.keep()
                kept_s = now_s

    def note_opened(self, event, arguments):
        """What is opened, also where that fails: a file that is missing here may lie on the other side."""
        if event == "open" and isinstance(arguments[0], str):
            try:
                self._opened.add(os.path.abspath(arguments[0]))
            except OSError:
                pass  # a relative path, and its folder is gone: what opens it is not to fail of us

    def look(self, frame, seconds):
        if frame is None:
            return
        name = self._name(frame.f_code)
        self.own_s[name] = self.own_s.get(name, 0.0) + seconds
        seen = set()
        while frame is not None:
            seen.add(self._name(frame.f_code))
            frame = frame.f_back
        for name in seen:
            self.whole_s[name] = self.whole_s.get(name, 0.0) + seconds

    def _name(self, code):
        """`numpy/core/numeric.py:ones`: the file as from a folder that modules are searched in."""
        if code not in self._names:
            folders = [each for each in sys.path if each and code.co_filename.startswith(each.rstrip("/") + "/")]
            cut = max(map(len, (each.rstrip("/") + "/" for each in folders))) if folders else 0
            self._names[code] = "%s:%s" % (code.co_filename[cut:], code.co_name)
        return self._names[code]

    def keep(self):
        modules = [getattr(each, "__file__", None) for each in list(sys.modules.values())]
        touched = self._opened.union(each for each in modules if isinstance(each, str))
        if len(touched) > self._kept:
            launch.keep_touched(self._folder, touched | launch.mapped())
            self._kept = len(touched)
        cpu_s = time.process_time()
        try:
            with open(self._path) as file:
                if json.load(file)[CPU] > cpu_s:
                    return
        except (OSError, ValueError, LookupError):
            pass  # nobody was before
        first = sorted(self.whole_s, key=lambda name: -self.whole_s[name])[:_MOST]
        found = {name: [round(self.own_s.get(name, 0.0), 4), round(self.whole_s[name], 4)] for name in first}
        half = "{}.{}".format(self._path, self._pid)
        with open(half, "w") as file:
            json.dump(dict(found, **{CPU: cpu_s}), file)
        os.rename(half, self._path)

    def end(self, thread):
        if os.getpid() != self._pid:  # a fork, which has no such thread
            return
        self._over.set()
        thread.join(1.0)
        self.keep()


def age_s():
    """How long ago this process was made."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
            return float(uptime.read().split()[0]) - ticks / float(os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0
