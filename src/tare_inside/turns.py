"""Steps by agreement: a process does the steps that it was granted, says when they began and ended, and waits.

Two FIFOs lie in the work folder of a side, made by whoever grants: `turn.grant` and `turn.report`. The granting side
holds both open; when it dies, reading the one gives its end and writing the other fails, and the process goes on alone.
Where they do not lie there, nothing waits. Of several processes only the one that marks its steps joins.

A grant is a number of steps, or FREE: go on to the end without a word. A report is (number of the next step, begin and
end of the turn, time waited so far), in nanoseconds of CLOCK_MONOTONIC. The first comes after the first step (or two).
"""

import os
import struct
import sys
import time
from _thread import allocate_lock
from itertools import count

if hasattr(time, "monotonic_ns"):
    now_ns = time.monotonic_ns
else:

    def now_ns():
        """Python 3.6: right to 2 ns after 100 days of uptime."""
        return int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)


FREE = 0
GRANT = struct.Struct("<q")
REPORT = struct.Struct("<qqqq")


def paths(folder):
    """The FIFO of grants and the FIFO of reports."""
    return tuple(os.path.join(folder, "turn." + what) for what in ("grant", "report"))


def wait_for_gpu():
    """Until a GPU has done its work, if torch uses one in this process."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def joined(folder):
    """This process's end; None where nobody grants steps."""
    if not os.path.exists(paths(folder)[0]):
        return None
    try:
        return Turns(folder, settle=wait_for_gpu)
    except OSError:  # whoever granted them is gone
        return None


class Turns(object):
    """One process's end. `settle` waits until the device has done its work: called once a turn, never once a step."""

    def __init__(self, folder, settle=None):
        grants, reports = paths(folder)
        self._reports = os.open(reports, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # fails where nobody reads
        self._grants = os.open(grants, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        for descriptor in (self._reports, self._grants):
            os.set_blocking(descriptor, True)
        self._settle, self._pid = settle, os.getpid()
        self._holding = allocate_lock()  # several threads may end steps
        self._until = 1  # so many steps are over at the end of the turn
        self._begin_ns = now_ns()
        self._counts = count(1)
        self.by_marks = False  # the program's own marks of steps end turns
        self.waited_ns = 0

    def ended(self):
        """One more step has ended."""
        self.stepped(next(self._counts))  # one call: no two threads get the same number

    def stepped(self, following):
        """A step has ended, and `following` is the number of the next one. Returns after the next turn has begun."""
        if following >= self._until and os.getpid() == self._pid:
            with self._holding:
                if following >= self._until:  # another thread may have held meanwhile
                    self.hold(following)

    def hold(self, following):
        """Report, and wait for the next grant."""
        if self._settle is not None:
            self._settle()
        end_ns = now_ns()
        granted = self._asked(REPORT.pack(following, self._begin_ns, end_ns, self.waited_ns))
        self._begin_ns = now_ns()
        self.waited_ns += self._begin_ns - end_ns
        self._until = following + granted if granted else float("inf")

    def _asked(self, report):
        try:
            os.write(self._reports, report)
            answer = os.read(self._grants, GRANT.size)  # shorter than PIPE_BUF, so it comes whole
        except OSError:
            return FREE
        return GRANT.unpack(answer)[0] if len(answer) == GRANT.size else FREE

    def close(self):
        os.close(self._grants)
        os.close(self._reports)
