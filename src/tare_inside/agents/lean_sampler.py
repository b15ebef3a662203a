"""Samples files of a device that has no tare: reads them on a grid, and keeps their texts as they were.

What the texts mean is found out later, on the controller, by the same probes that would have read them. Told by one
line of JSON on standard input: `period_ns`, and for each file its path and how often it is read (0: at each tick).
Says a line when the first tick is taken; ends when standard input does, after one tick more.

The file it leaves is a zlib stream of JSON lines: `[due_ns, late_ns, missed, cpu_s, [[file, after_ns, text], ...]]`. A
text that is the same as the last is left out; a number in its place is the errno of a file that could not be read.
"""

import gc
import json
import os
import select
import sys
import time
import zlib

from tare_inside.launch import now_ns

_MOST_BYTES = 1 << 20  # of one file
_SETTLE_NS = 5000000000  # how much is lost at most where we are ended: it costs a few bytes each time


class Watched:
    """A file that is read again and again through one descriptor."""

    def __init__(self, path, period_ns):
        self._path = path
        self._period_ns = period_ns
        self._due_ns = 0
        self._descriptor = None
        self._last = None

    def is_due(self, t_ns):
        if t_ns < self._due_ns:
            return False
        self._due_ns = t_ns + self._period_ns
        return True

    def entry(self, number, t_ns):
        """What this read gives to the tick."""
        found = self._read()
        after_ns = now_ns() - t_ns
        if found == self._last:
            return [number, after_ns]
        self._last = found
        return [number, after_ns, found]

    def _read(self):
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            data = chunk = os.pread(self._descriptor, 65536, 0)
            while len(chunk) >= 2048 and len(data) < _MOST_BYTES:  # it may be handed out a page at a time
                chunk = os.pread(self._descriptor, 65536, len(data))
                data += chunk
            return data.decode("ascii", "replace")
        except OSError as error:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            return error.errno


class Sampling:
    """The ticks, as lines of the file."""

    def __init__(self, spec, out):
        self._files = [Watched(path, period_ns) for path, period_ns in spec["files"]]
        self._out = out
        self._packer = zlib.compressobj(1)
        self._settle_ns = 0

    def tick(self, due_ns, late_ns, missed, last=False):
        t_ns = due_ns + late_ns
        read = [one.entry(number, t_ns) for number, one in enumerate(self._files) if one.is_due(t_ns) or last]
        line = json.dumps([due_ns, late_ns, missed, time.process_time(), read]) + "\n"
        self._out.write(self._packer.compress(line.encode("utf-8")))
        if t_ns >= self._settle_ns:
            self._settle_ns = t_ns + _SETTLE_NS
            self._out.write(self._packer.flush(zlib.Z_SYNC_FLUSH))
            self._out.flush()

    def close(self):
        self._out.write(self._packer.flush())
        self._out.close()


def ticks(sampling, period_ns, reported):
    """On a fixed grid from now on, until whoever told us has no more to say."""
    due_ns, missed, first = now_ns(), 0, True
    while True:
        wait_ns = due_ns - now_ns()
        if select.select([reported], [], [], max(0.0, wait_ns / 1e9))[0]:
            return missed
        sampling.tick(due_ns, now_ns() - due_ns, missed)
        if first:
            os.write(1, b"watching\n")
            gc.freeze() if hasattr(gc, "freeze") else gc.collect()
            first = False
        missed = max(0, (now_ns() - due_ns) // period_ns)
        due_ns += period_ns * (1 + missed)


def main():
    spec = json.loads(sys.stdin.buffer.readline().decode("utf-8"))
    sampling = Sampling(spec, open(sys.argv[2], "wb"))
    missed = ticks(sampling, spec["period_ns"], 0)
    sampling.tick(now_ns(), 0, missed, last=True)  # off the grid: the counters' end matters
    sampling.close()
