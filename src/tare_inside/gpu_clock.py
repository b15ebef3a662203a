"""When the GPU did its work, on the host's clock: CUDA events, recorded in the loop and read after it.

Recording an event costs the host about a microsecond and the GPU nothing; nobody waits for it. An event knows no host
time, so the whole row is hung between two anchors, one before the loop and one after it: at an anchor the GPU is idle
and the host waits for a single event, so that its time lies between two readings of the host's clock. What the two
clocks disagree on between the anchors (`drift_s`) is spread evenly over the row; half the width of the wider anchor is
how wrong a place on the host's clock can be (`uncertainty_s`). Durations do not depend on the anchors.
"""

from collections import namedtuple

from tare_inside.marks import now_ns

ANCHOR_TRIES = 5

Anchor = namedtuple("Anchor", "event t_ns half_width_ns")


class GpuClock(object):
    """A row of events made ahead: `tick()` records the next one; `place()` says when each of them happened."""

    def __init__(self, cuda, count):
        self._cuda = cuda
        self._events = [cuda.Event(enable_timing=True) for _ in range(count)]
        for event in self._events:  # the driver makes an event when it is first recorded: here, not in the loop
            event.record()
        self._used = 0
        self._start = self._end = None
        self.tick = self._ticking()

    def _ticking(self):
        following = iter(self._events).__next__

        def tick():
            following().record()
            self._used += 1

        return tick

    def start(self):
        """Anchor the row's beginning; the GPU is idle afterwards."""
        self._start = self._anchored()

    def stop(self):
        """Anchor the row's end; the GPU has done everything that was asked of it."""
        self._end = self._anchored()

    def _anchored(self):
        """The narrowest of a few tries: where nothing comes between, that is some ten microseconds."""
        return min((self._try_to_anchor() for _ in range(ANCHOR_TRIES)), key=lambda anchor: anchor.half_width_ns)

    def _try_to_anchor(self):
        event = self._cuda.Event(enable_timing=True)
        event.record()
        self._cuda.synchronize()
        before_ns = now_ns()
        event.record()
        event.synchronize()
        after_ns = now_ns()
        return Anchor(event, (before_ns + after_ns) // 2, (after_ns - before_ns) / 2)

    def place(self):
        """(the host's time of each event that was recorded, what the two clocks disagreed on, the uncertainty)."""
        passed_ns = _passed_ns([self._start.event] + self._events[: self._used] + [self._end.event])
        host_ns = self._end.t_ns - self._start.t_ns
        rate = host_ns / passed_ns[-1] if passed_ns[-1] > 0 else 1.0
        said = {
            "drift_s": (passed_ns[-1] - host_ns) / 1e9,
            "uncertainty_s": max(self._start.half_width_ns, self._end.half_width_ns) / 1e9,
        }
        return [self._start.t_ns + int(t_ns * rate) for t_ns in passed_ns[:-1]], said


def _passed_ns(events):
    """How long after the first each of the others was; by neighbours, for the driver's milliseconds are a float32."""
    passed, total_ms = [], 0.0
    for before, after in zip(events, events[1:]):
        total_ms += before.elapsed_time(after)
        passed.append(total_ms * 1e6)
    return passed
