"""When the GPU did its work, on the host's clock: CUDA events, recorded in the loop and read after it.

Recording an event costs the host about a microsecond and the GPU nothing; nobody waits for it. An event knows no host
time, so the whole row is hung between two anchors, one before the loop and one after it: at an anchor the GPU is idle
and the host waits for a single event, so that its time lies between two readings of the host's clock. What the two
clocks disagree on between the anchors (`drift_s`) is spread evenly over the row; half the width of the wider anchor is
how wrong a place on the host's clock can be (`uncertainty_s`). Durations do not depend on the anchors.

A step as the GPU saw it, from CUDA events that are recorded in the user's stream and read when they have happened.

Nothing is synchronised: an event that has not happened yet is asked again after a later step. `gpu_step` is from the
first to the last event of a step, `gpu_idle` from the last one of the step before to its first: the time in which the
GPU had run out of work (or waited for the host's next batch).

Events tell only how far apart they were on the GPU's clock. They are chained, each measured from the one before (one
number for a long time is a 32-bit float and too coarse), from a reference event on. Where that chain lies on the host's
clock is known by two bounds: no event happens before the host recorded it, none after the host saw that it had. The
first is sharp whenever the GPU was idle. The GPU's clock may drift by DRIFT, so an old bound slowly loses its say.

From the GPU's events to marks, after the run.

A step has three events, or five with phases: before the copy, before the first kernel, (after forward, after backward,)
after the last kernel. With `timing: async` they are what a step is made of: it runs from the end of the step before to
its own end, and the host's wait for the mini-batch counts as far as the GPU had nothing to do meanwhile.
"""

from collections import deque, namedtuple

from tare_inside import marks
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
        reported = {
            "drift_s": (passed_ns[-1] - host_ns) / 1e9,
            "uncertainty_s": max(self._start.half_width_ns, self._end.half_width_ns) / 1e9,
        }
        return [self._start.t_ns + int(t_ns * rate) for t_ns in passed_ns[:-1]], reported


def _passed_ns(events):
    """How long after the first each of the others was; by neighbours, for the driver's milliseconds are a float32."""
    passed, total_ms = [], 0.0
    for before, after in zip(events, events[1:]):
        total_ms += before.elapsed_time(after)
        passed.append(total_ms * 1e6)
    return passed


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


EVENTS_A_STEP = {False: 3, True: 5}  # with phases or without


def by_step(times_ns, phases):
    """The events of each step."""
    size = EVENTS_A_STEP[phases]
    return [times_ns[at : at + size] for at in range(0, len(times_ns) - size + 1, size)]


def mark_gpu(steps):
    """`gpu_step`: from the first kernel to the last; `gpu_idle`: the gap since the last kernel of the step before."""
    ended_ns = None
    for step, events in enumerate(steps):
        marks.interval("gpu_step", step, events[1], events[-1])
        if ended_ns is not None:
            marks.interval("gpu_idle", step, ended_ns, events[1])
        ended_ns = events[-1]


def mark_steps(steps, waits, phases):
    """`step`, `fetch`, `copy`, `compute` and the phases, as the GPU saw them; `waits` are the host's, begin and end."""
    if not steps:
        return
    ended_ns = waits[0][0]
    for step, (events, wait) in enumerate(zip(steps, waits)):
        begin_ns, copied_ns, end_ns = events[0], events[1], events[-1]
        marks.interval("step", step, ended_ns, end_ns)
        marks.interval("fetch", step, *visible(wait, ended_ns, begin_ns))
        marks.interval("copy", step, begin_ns, copied_ns)
        marks.interval("compute", step, copied_ns, end_ns)
        if phases:
            for name, at in (("forward", 1), ("backward", 2), ("optimiser", 3)):
                marks.interval(name, step, events[at], events[at + 1])
        ended_ns = end_ns


def mark_epochs(steps, waits, steps_per_epoch):
    """`epoch`, from the end of the one before to the end of its own last step."""
    ended_ns = waits[0][0]
    for epoch, last in enumerate(range(steps_per_epoch - 1, len(steps), steps_per_epoch)):
        marks.interval("epoch", epoch, ended_ns, steps[last][-1])
        ended_ns = steps[last][-1]


def visible(wait, idle_from_ns, idle_to_ns):
    """The part of the host's wait during which the GPU was idle; nothing, at the gap's begin, where there is none."""
    begin_ns, end_ns = max(wait[0], idle_from_ns), min(wait[1], idle_to_ns)
    return (begin_ns, end_ns) if end_ns > begin_ns else (idle_from_ns, idle_from_ns)
