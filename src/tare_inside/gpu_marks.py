"""From the GPU's events to marks, after the run.

A step has three events, or five with phases: before the copy, before the first kernel, (after forward, after backward,)
after the last kernel. With `timing: async` they are what a step is made of: it runs from the end of the step before to
its own end, and the host's wait for the mini-batch counts as far as the GPU had nothing to do meanwhile.
"""

from tare_inside import marks

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
