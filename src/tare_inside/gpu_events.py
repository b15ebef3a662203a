"""A step as the GPU saw it, from CUDA events that are recorded in the user's stream and read when they have happened.

Nothing is synchronised: an event that has not happened yet is asked again after a later step. `gpu_step` is from the
first to the last event of a step, `gpu_idle` from the last one of the step before to its first: the time in which the
GPU had run out of work (or waited for the host's next batch).

Events tell only how far apart they were on the GPU's clock. They are chained, each measured from the one before (one
number for a long time is a 32-bit float and too coarse), from a reference event on. Where that chain lies on the host's
clock is known by two bounds: no event happens before the host recorded it, none after the host saw that it had. The
first is sharp whenever the GPU was idle. The GPU's clock may drift by DRIFT, so an old bound slowly loses its say.
"""

from collections import deque

from tare_inside import marks

DRIFT = 1e-4
READS_A_STEP = 2  # so the queue shrinks, and no step pays for many others
MOST_WAITING = 4096  # steps; a script that never lets the GPU finish is not marked on it


def timeline(cuda):
    """A Timeline if the script has begun to use a GPU, else None; never the first to touch one."""
    return Timeline(cuda) if cuda.is_initialized() else None


class Timeline(object):
    """The events of the step that is going on, and the steps whose events have not all happened."""

    def __init__(self, cuda):
        self._cuda = cuda
        self._free = []
        self._stamps = []  # (host_ns, event) in order of time
        self._waiting = deque()
        self._last = None  # (event, its time on the chain in ns): of the last step that was read
        self._offset_ns = None  # from the chain to the host's clock
        self._offset_at_ns = 0.0
        self._follows = False  # the GPU did nothing that we forgot since the last step

    def stamp(self, host_ns):
        """The host is here now; the GPU will be when it has done what it was given."""
        if self._cuda.is_current_stream_capturing():
            return
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        self._stamps.append((host_ns, event))

    def forget(self):
        """What was stamped belongs to no step; and the GPU was not idle before the next one."""
        if self._stamps:
            self._free.extend(event for _, event in self._stamps)
            self._stamps, self._follows = [], False

    def stepped(self, step, parts, end_ns):
        """A step is over; `parts` are its (name, intervals on the host's clock). Read what has happened by now."""
        own = [stamp for stamp in self._stamps if stamp[0] <= end_ns]
        self._stamps = self._stamps[len(own) :]
        kept = len(own) >= 2 and len(self._waiting) < MOST_WAITING
        if kept:
            spans = _between_stamps(parts, [host_ns for host_ns, _ in own])
            self._waiting.append((step, own, spans, self._follows))
        else:
            self._free.extend(event for _, event in own)
        self._follows = kept
        if not self._cuda.is_current_stream_capturing():
            self._read(READS_A_STEP)

    def close(self):
        """The program ends, and the GPU with it: wait for what it has not done."""
        if self._waiting:
            self._waiting[-1][1][-1][1].synchronize()
        self._read(len(self._waiting))

    def _read(self, most):
        while most and self._waiting and self._waiting[0][1][-1][1].query():
            seen_ns = marks.now_ns()
            self._mark(seen_ns, *self._waiting.popleft())
            most -= 1

    def _mark(self, seen_ns, step, own, spans, follows):
        before = self._last
        chain_ns = self._chained(own)
        self._place([host_ns for host_ns, _ in own], chain_ns, seen_ns)
        on_host = [int(self._offset_ns + at_ns) for at_ns in chain_ns]
        for name, first, last in spans:
            marks.interval("gpu_" + name, step, on_host[first], on_host[last])
        marks.interval("gpu_step", step, on_host[0], on_host[-1])
        if before is not None:
            self._free.append(before[0])
        if before is not None and follows:
            idle_ns = max(0, int(chain_ns[0] - before[1]))
            marks.interval("gpu_idle", step, on_host[0] - idle_ns, on_host[0])
        self._free.extend(event for _, event in own[:-1])

    def _chained(self, own):
        """When each event happened, on the chain; the first ever is the reference."""
        event, at_ns = self._last or (own[0][1], 0.0)
        times_ns = []
        for _, following in own:
            if following is not event:
                at_ns += event.elapsed_time(following) * 1e6
            event = following
            times_ns.append(at_ns)
        self._last = (event, at_ns)
        return times_ns

    def _place(self, host_ns, chain_ns, seen_ns):
        """Bring the offset between its bounds."""
        least = max(recorded_ns - at_ns for recorded_ns, at_ns in zip(host_ns, chain_ns))
        if self._offset_ns is not None:
            least = max(least, self._offset_ns - DRIFT * (chain_ns[-1] - self._offset_at_ns))
        self._offset_ns, self._offset_at_ns = min(least, seen_ns - chain_ns[-1]), chain_ns[-1]


def _between_stamps(parts, stamps_ns):
    """(name, index of its first stamp, of its last) of each interval: from the last stamp before it to its end."""
    spans = []
    for name, intervals in parts:
        for begin_ns, end_ns in intervals:
            before = [index for index, at_ns in enumerate(stamps_ns) if at_ns <= begin_ns]
            if before and end_ns in stamps_ns:
                spans.append((name, before[-1], stamps_ns.index(end_ns)))
    return spans
