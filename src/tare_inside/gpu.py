"""What the GPU did in each step, on its own clock: one definition, for built-in loops and for loops of others.

A step on the GPU begins with its first event and ends with its last. The first lies before the copy of the mini-batch;
in a loop without a DataLoader it is the last event of the step before: nothing tells where the loop's body begins.

    gpu_step        from the first event of a step to its last
    gpu_copy        the copy of the mini-batch, where events lie on both sides of it
    gpu_forward     from the copy's end (or the step's begin) to the backward pass
    gpu_backward    the backward pass
    gpu_optimiser   from its end to the end of the optimiser step
    gpu_idle        from the last event of the step before to the first of this one: outside all work. Between events
                    nobody knows whether the GPU had work; `activity.py` does, for a window of steps.

`step_marks` writes all of them. There are two ways to get at the times of events:

`GpuClock`, for loops of our own, which may wait for the GPU before the first step and after the last. The whole row of
events is hung between two anchors: there the GPU is idle and the host waits for a single event, so that its time lies
between two readings of the host's clock. What the two clocks disagree on between the anchors (`drift_s`) is spread
evenly over the row; half the width of the wider anchor is how wrong a place on the host's clock can be
(`uncertainty_s`).

`Timeline`, for loops of others, in which nothing may wait, and of which it records as many steps as cost SHARE of their
time. An event that has not happened yet is asked again after a
later step. Where the row lies on the host's clock is known by two bounds: no event happens before the host recorded
it, none after the host saw that it had. The first is sharp whenever the GPU was idle. The GPU's clock may drift by
DRIFT, so an old bound slowly loses its say.

Either way events are chained, each measured from the one before: one number for a long time is a 32-bit float and too
coarse. Recording an event costs the host about a microsecond and the GPU nothing; nobody waits for it.
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
SHARE = 0.001  # of the time of the steps may be spent on recording and reading events: one costs as much as a launch
COSTS = 16  # of stamps, the last ones
MOST_APART = 128  # steps between two that are recorded
READS_A_STEP = 2  # so the queue shrinks, and no step pays for many others
MOST_WAITING = 4096  # steps; a script that never lets the GPU finish is not marked on it


def timeline(cuda, make_window=None):
    """A Timeline if the script has begun to use a GPU, else None; never the first to touch one."""
    if not cuda.is_initialized():
        return None
    return Timeline(cuda, make_window() if make_window else None)


class Timeline(object):
    """The events of the step that is going on, and the steps whose events have not all happened."""

    def __init__(self, cuda, window=None):
        self._cuda = cuda
        self._capturing = cuda.is_current_stream_capturing
        self.window = window  # an activity.Window, or None
        self._free = []
        self._stamps = []  # (host_ns, event) in order of time
        self._waiting = deque()
        self._last = None  # (event, its time on the chain in ns): of the last step that was read
        self._end = None  # (host_ns, event): the end of the last step
        self._end_waits = False  # that step is waiting to be read, or was
        self._offset_ns = None  # from the chain to the host's clock
        self._offset_at_ns = 0.0
        self._follows = False  # the GPU did nothing that we forgot since the last step
        self._turn = self._resting = 0  # steps that were recorded in a row; that are still left out
        self._costs = deque(maxlen=COSTS)  # of a stamp, in ns
        self._stamped = self._spent_ns = 0  # stamps, and the time of all else, since steps were last left out
        self._steps, self._since_ns = 0, None

    def stamp(self, host_ns):
        """The host is here now; the GPU will be when it has done what it was given."""
        if self._resting or self._capturing():
            return
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        self._stamps.append((host_ns, event))
        self._stamped += 1
        self._costs.append(marks.now_ns() - host_ns)

    def forget(self):
        """What was stamped belongs to no step; and the GPU was not idle before the next one."""
        if self._stamps:
            self._free.extend(event for _, event in self._stamps)
            self._stamps, self._follows = [], False

    def waited(self, begin_ns, end_ns):
        """The host waited for a mini-batch."""
        if self.window is not None:
            self.window.waited(begin_ns, end_ns)

    def stepped(self, step, parts, end_ns, came_ns=None):
        """A step is over; `parts` are its (name, intervals on the host's clock). Read what has happened by now.

        `came_ns`: when its first mini-batch came, at which there is a stamp; None: it began where the one before ended.
        """
        if self._resting and not self._stamps:
            self._pass(step)
            return
        begin_ns = marks.now_ns()
        own = [stamp for stamp in self._stamps if stamp[0] <= end_ns]
        self._stamps = self._stamps[len(own) :]
        ended, follows = self._end, self._follows
        begins, ends = zip(*[interval for _, intervals in parts for interval in intervals] or [(end_ns, end_ns)])
        joined = came_ns is None and follows and ended[0] == min(begins)
        has_end = bool(own) and own[-1][0] == max(ends)
        is_whole = has_end and (joined or own[0][0] == came_ns)
        kept = is_whole and len(own) >= 2 and len(self._waiting) < MOST_WAITING
        if kept:
            own = [ended] + own if joined else own
            spans = _between_stamps(parts, [host_ns for host_ns, _ in own])
            self._waiting.append((step, own, spans, follows and not joined))
        else:
            self._free.extend(event for _, event in (own[:-1] if has_end else own))
        if has_end:
            if not self._end_waits and ended is not None and not (kept and joined):
                self._free.append(ended[1])
            self._end, self._end_waits = own[-1], kept
        self._follows = has_end
        if not self._capturing():
            self._read(READS_A_STEP)
            self._spent_ns += marks.now_ns() - begin_ns
            if self.window is not None:
                self.window.stepped(step)
        self._rest(end_ns)

    def _pass(self, step):
        """A step that is left out, which most are where events are dear: as little as can be."""
        self._steps += 1
        self._resting -= 1
        self._follows = False
        window = self.window
        if (self._waiting or (window is not None and not window.is_over)) and not self._capturing():
            begin_ns = marks.now_ns()
            self._read(READS_A_STEP)
            self._spent_ns += marks.now_ns() - begin_ns
            if window is not None:
                window.stepped(step)

    def _rest(self, end_ns):
        """Record two steps in a row (what lies between them is known then), and leave out as many as it takes."""
        self._steps += 1
        self._since_ns = self._since_ns or end_ns
        if self._resting:
            self._resting -= 1
            return
        self._turn += 1
        if self._turn >= 2 and self._steps > 2 and self._costs:
            step_ns = (end_ns - self._since_ns) / (self._steps - 1.0)
            # Of stamps the lower quarter: where the GPU's queue is full, recording waits for it, and costs nothing.
            usual_ns = sorted(self._costs)[len(self._costs) // 4]
            apart = (self._stamped * usual_ns + self._spent_ns) / max(1.0, SHARE * step_ns)
            self._turn, self._resting = 0, int(min(MOST_APART, max(0, apart - 2)))
            self._stamped = self._spent_ns = 0

    def close(self):
        """The program ends, and the GPU with it: wait for what it has not done."""
        if self._waiting:
            self._waiting[-1][1][-1][1].synchronize()
        self._read(len(self._waiting))
        if self.window is not None:
            self.window.close()

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
        idle_ns = max(0, int(chain_ns[0] - before[1])) if before is not None and follows else None
        step_marks(step, on_host, spans, idle_ns)
        done = [event for _, event in own[:-1]]
        if before is not None and before[0] is not done[0]:
            done.append(before[0])
        self._free.extend(done)

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


def step_marks(step, at_ns, spans, idle_ns):
    """Write a step's marks. `at_ns` are its events on the host's clock, `spans` its (name, first event, last event).

    `idle_ns`: how long before the first event the last one of the step before was; None where that is not known.
    """
    for name, first, last in spans:
        marks.interval("gpu_" + name, step, at_ns[first], at_ns[last])
    marks.interval("gpu_step", step, at_ns[0], at_ns[-1])
    if idle_ns is not None:
        marks.interval("gpu_idle", step, at_ns[0] - idle_ns, at_ns[0])


# The events of a step in loops of our own: before the copy, before the first kernel, (after forward, after backward,)
# after the last kernel.
INFERENCE = (("copy", 0, 1), ("inference", 1, 2))


def training(pieces=1):
    """The same of a step in which a mini-batch goes forward and backward in so many pieces."""
    spans = [("copy", 0, 1)]
    for at in range(1, 2 * pieces, 2):
        spans += [("forward", at, at + 1), ("backward", at + 1, at + 2)]
    return tuple(spans) + (("optimiser", 2 * pieces + 1, 2 * pieces + 2),)


def by_step(times_ns, spans):
    """The events of each whole step."""
    size = spans[-1][2] + 1
    return [times_ns[at : at + size] for at in range(0, len(times_ns) - size + 1, size)]


def mark_gpu(steps, spans):
    """The marks of all steps of a loop of our own."""
    ended_ns = None
    for step, events in enumerate(steps):
        step_marks(step, events, spans, None if ended_ns is None else events[0] - ended_ns)
        ended_ns = events[-1]


def mark_steps(steps, waits, phases):
    """With `timing: async`, `step`, `fetch`, `copy`, `compute` and the phases are the GPU's; `waits` are the host's.

    `phases` are the spans of those that are marked.

    A step runs from the end of the step before to its own end, and the host's wait for the mini-batch counts as far
    as the GPU had nothing to do meanwhile.
    """
    if not steps:
        return
    ended_ns = waits[0][0]
    for step, (events, wait) in enumerate(zip(steps, waits)):
        begin_ns, copied_ns, end_ns = events[0], events[1], events[-1]
        marks.interval("step", step, ended_ns, end_ns)
        marks.interval("fetch", step, *visible(wait, ended_ns, begin_ns))
        marks.interval("copy", step, begin_ns, copied_ns)
        marks.interval("compute", step, copied_ns, end_ns)
        for name, first, last in phases:
            marks.interval(name, step, events[first], events[last])
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
