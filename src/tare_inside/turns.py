"""Steps by agreement: a process does the steps that it was granted, says when they began and ended, and waits.

Two FIFOs lie in the work folder of a side, made by whoever grants: `turn.RANK.grant` and `turn.RANK.report`. The
granting side holds both open; when it dies, reading the one gives its end and writing the other fails, and the process
goes on alone. Nothing is asked between two boundaries: a step costs one subtraction.

A grant is a number of steps, or FREE: go on to the end without a word. A report is (number of the next step, begin and
end of the turn, time waited so far), in nanoseconds of CLOCK_MONOTONIC.
"""

import os
import struct

from tare_inside import marks

FREE = 0
GRANT = struct.Struct("<q")
REPORT = struct.Struct("<qqqq")


def paths(folder, rank=0):
    """The FIFO of grants and the FIFO of reports."""
    return tuple(os.path.join(folder, "turn.{}.{}".format(rank, what)) for what in ("grant", "report"))


class Turns(object):
    """One process's end. `settle` waits until the device has done its work: called once a turn, never once a step."""

    def __init__(self, folder, rank=0, settle=None):
        grants, reports = paths(folder, rank)
        self._grants = os.open(grants, os.O_RDONLY | os.O_CLOEXEC)
        self._reports = os.open(reports, os.O_WRONLY | os.O_CLOEXEC)
        self._settle, self._pid = settle, os.getpid()
        self._left = 1
        self._begin_ns = marks.now_ns()
        self.waited_ns = 0

    def stepped(self, following):
        """A step has ended, and `following` is the number of the next one. Returns after the next turn has begun."""
        self._left -= 1
        if not self._left and os.getpid() == self._pid:
            self.hold(following)

    def hold(self, following):
        """Report, and wait for the next grant."""
        if self._settle is not None:
            self._settle()
        end_ns = marks.now_ns()
        granted = self._asked(REPORT.pack(following, self._begin_ns, end_ns, self.waited_ns))
        self._begin_ns = marks.now_ns()
        self.waited_ns += self._begin_ns - end_ns
        self._left = granted or -1  # which no subtraction makes zero

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
