"""What marking costs, measured on the very machine after the run: the loop with marks against the loop without them.

Both run over nothing: no data, no network. So the difference is the marks, the clock readings and, on a GPU, the
recording of events. What waiting for the GPU does to the work itself cannot be seen this way.
"""

import os

from tare_inside import marks
from tare_inside.training_loop import train, train_unmarked

STEPS, ROUNDS = 200, 7
_MARKS_A_STEP = 14


class Nothing(object):
    """Stands for a mini-batch and for a loss."""

    def to(self, device, non_blocking=False):
        return self

    def detach(self):
        return self


def _forward(inputs, labels):
    return inputs


def _backward(loss):
    pass


def _optimise():
    pass


def marking_s(scratch, arrange):
    """Seconds a step that marking takes: the median of a few rounds.

    `arrange(loader, parts, epochs, steps, marked)` makes what the loop needs just as the job's own was made. Marks go
    to the file `scratch`, which is removed.
    """
    batches = [(Nothing(), Nothing())] * STEPS
    parts = (_forward, _backward, _optimise)
    marks.open_marks(scratch, ROUNDS * STEPS * _MARKS_A_STEP)
    try:
        costs_s = []
        for _ in range(ROUNDS):
            with_ns = _spent_ns(train, arrange(batches, parts, 1, STEPS, True)[0])
            without_ns = _spent_ns(train_unmarked, arrange(batches, parts, 1, STEPS, False)[0])
            costs_s.append((with_ns - without_ns) / 1e9 / STEPS)
    finally:
        marks.close_marks()
        os.unlink(scratch)
    return sorted(costs_s)[ROUNDS // 2]


def _spent_ns(loop, ready):
    begin_ns = marks.now_ns()
    loop(ready, lambda epoch, begin_ns, end_ns: None)
    return marks.now_ns() - begin_ns
