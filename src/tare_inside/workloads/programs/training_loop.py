"""The timed loop: what one mini-batch is put through, and where it is marked. Nothing is printed or collected here.

What marking costs, measured on the very machine after the run: the loop with marks against the loop without them.

Both run over nothing: no data, no network. So the difference is the marks, the clock readings and, on a GPU, the
recording of events. What waiting for the GPU does to the work itself cannot be seen this way.

Writes what was learnt to disk after every so many passes, where the job asks for that.

A checkpoint is what scripts write: the weights, the optimiser's state and the number of the pass, by `torch.save`, and
no fsync: the kernel writes it back when it sees fit. `new` files are written one beside the other; the `same` file is
opened again and overwritten in place, which the kernel treats otherwise. Each is marked as `checkpoint`, and lies in no
step, in no epoch and not in the training's own time.
"""

import os
import shutil
import time
from collections import namedtuple

import torch

from tare_inside import marks

ON_HOST = ("fetch", "copy", "compute", "step")
BESIDE_GPU = tuple("host_" + name for name in ON_HOST)  # timing: async, where the GPU's own are `step`...
PHASES = ("forward", "backward", "optimiser")

# What the loop needs. `move` brings a tensor to the device, `wait` waits until the device has done its work, `tick`
# records an event there, `stepped` hears of each step; on a CPU each of them does nothing. `freshen` is called before
# the clock of a pass is read.
Ready = namedtuple("Ready", "loader compute move wait tick epochs steps names freshen stepped")

# What came of it: the losses, still as tensors; begin and end of each wait for a mini-batch; when epoch 0 ended.
Trained = namedtuple("Trained", "losses waits epoch0_end_ns")


def train(ready, note_epoch):
    """Train, and mark each mini-batch after it is done; `note_epoch(epoch, begin_ns, end_ns)` hears of each pass."""
    loader, compute, move, wait, tick, epochs, steps, names, freshen, stepped = ready
    write, now = marks.group(names, epochs * steps), marks.now_ns
    losses, waits, ends_ns = [], [], []
    keep, note_wait = losses.append, waits.append
    step = 0
    for epoch in range(epochs):
        freshen()
        t0 = begin_ns = now()
        batches = iter(loader)
        for _ in range(steps):
            inputs, labels = next(batches)
            t1 = now()
            tick()
            inputs, labels = move(inputs), move(labels)
            wait()
            t2 = now()
            tick()
            loss = compute(step, inputs, labels)
            tick()
            wait()
            t3 = now()
            write(step, t0, t1, t1, t2, t2, t3, t0, t3)
            keep(loss.detach())
            note_wait((t0, t1))
            stepped(step, t0, t1)
            step += 1
            t0 = now()
        ends_ns.append(now())
        note_epoch(epoch, begin_ns, ends_ns[-1])
    return Trained(losses, waits, ends_ns[0])


def train_unmarked(ready, note_epoch):
    """As `train`, with not a mark in it: the other side of what marking costs."""
    loader, compute, move, wait, _, epochs, steps, _, freshen, _ = ready
    now = marks.now_ns
    losses, ends_ns = [], []
    keep = losses.append
    step = 0
    for epoch in range(epochs):
        freshen()
        begin_ns = now()
        batches = iter(loader)
        for _ in range(steps):
            inputs, labels = next(batches)
            inputs, labels = move(inputs), move(labels)
            wait()
            loss = compute(step, inputs, labels)
            wait()
            keep(loss.detach())
            step += 1
        ends_ns.append(now())
        note_epoch(epoch, begin_ns, ends_ns[-1])
    return Trained(losses, [], ends_ns[0])


def computing(forward, backward, optimise):
    """A function that puts one mini-batch through all three."""

    def compute(step, inputs, labels):
        loss = forward(inputs, labels)
        backward(loss)
        optimise()
        return loss

    return compute


def computing_in_phases(forward, backward, optimise, tick, wait=None, steps=0, pieces=1):
    """As `computing`, with an event after each phase; with `wait`, each is waited for and marked as well.

    A mini-batch may be put through in so many pieces, whose gradients add up before the one optimiser step.
    """
    names = PHASES[:2] * pieces + PHASES[2:]
    write = nothing if wait is None else marks.group(names, steps)
    hold, now = wait or nothing, marks.now_ns

    def compute(step, inputs, labels):
        total, times_ns, t0 = None, [], now()
        # One piece is the mini-batch itself: cutting it, or detaching its loss, would cost each step some microseconds.
        cut = ((inputs, labels),) if pieces == 1 else zip(inputs.chunk(pieces), labels.chunk(pieces))
        for some, known in cut:
            loss = forward(some, known)
            tick()
            hold()
            t1 = now()
            backward(loss)
            tick()
            hold()
            t2 = now()
            times_ns += (t0, t1, t1, t2)
            if pieces > 1:
                total = loss.detach() if total is None else total + loss.detach()
            t0 = t2
        optimise()
        hold()
        times_ns += (t0, now())
        write(step, *times_ns)
        return loss if total is None else total

    return compute


def computing_between_ticks(forward, backward, optimise, tick):
    """As `computing`, with an event after forward and one after backward, for which nobody waits."""

    def compute(step, inputs, labels):
        loss = forward(inputs, labels)
        tick()
        backward(loss)
        tick()
        optimise()
        return loss

    return compute


def nothing(*_):
    """Where nothing is waited for, recorded or marked."""


def parts_of(model, optimiser, loss_of):
    """Forward, backward and optimiser step of a network."""

    def forward(inputs, labels):
        outputs = model(inputs)
        # One row a decision: an image's class, or each token's in a text.
        return loss_of(outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1))

    def backward(loss):
        loss.backward()

    def optimise():
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return forward, backward, optimise


STEPS, ROUNDS = 200, 7
_MARKS_A_STEP, _MARKS_A_PIECE = 10, 4


class Nothing(object):
    """Stands for a mini-batch and for a loss."""

    def to(self, device, non_blocking=False):
        return self

    def detach(self):
        return self

    def chunk(self, pieces):
        return (self,) * pieces

    def __add__(self, other):
        return self


def marking_s(scratch, arrange, pieces=1):
    """Seconds a step that marking takes: the median of a few rounds.

    `arrange(loader, parts, epochs, steps, marked)` makes what the loop needs just as the job's own was made. Marks go
    to the file `scratch`, which is removed.
    """
    batches = [(Nothing(), Nothing())] * STEPS
    parts = (lambda inputs, labels: inputs), nothing, nothing
    before = marks.opened()
    marks.open_marks(scratch, ROUNDS * STEPS * (_MARKS_A_STEP + _MARKS_A_PIECE * pieces))
    try:
        costs_s = []
        for _ in range(ROUNDS):
            with_ns = _spent_ns(train, arrange(batches, parts, 1, STEPS, True)[0])
            without_ns = _spent_ns(train_unmarked, arrange(batches, parts, 1, STEPS, False)[0])
            costs_s.append((with_ns - without_ns) / 1e9 / STEPS)
    finally:
        marks.resume(before)
        os.unlink(scratch)
    return sorted(costs_s)[ROUNDS // 2]


def _spent_ns(loop, ready):
    begin_ns = marks.now_ns()
    loop(ready, lambda epoch, begin_ns, end_ns: None)
    return marks.now_ns() - begin_ns


class Checkpoints(object):
    """Saves what `state()` gives, and keeps account of it. Nothing is made before the first one."""

    def __init__(self, job, state, wait=nothing):
        self._every, self._same = job.get("checkpoint_every"), job.get("checkpoint_file") == "same"
        self._folder, self._state, self._wait = job.get("checkpoint_folder"), state, wait
        self.count = self.bytes = self.spent_ns = 0
        self.cpu_s = 0.0

    def after(self, epoch):
        """Write one, if this pass is one of those that end with it."""
        if not self._every or (epoch + 1) % self._every:
            return
        self._wait()  # for kernels that still run: they are training
        begin_ns, begin_cpu_s = marks.now_ns(), time.process_time()
        self._write(dict(self._state(), epoch=epoch))
        end_ns = marks.now_ns()
        marks.interval("checkpoint", -1, begin_ns, end_ns)  # it is no step's
        self.count += 1
        self.spent_ns += end_ns - begin_ns
        self.cpu_s += time.process_time() - begin_cpu_s

    def said(self):
        """How many there were, what one took, and how large the last one was; nothing where there were none."""
        if not self.count:
            return {}
        mean_s = self.spent_ns / 1e9 / self.count
        return {"checkpoints": self.count, "checkpoint_s": mean_s, "checkpoint_bytes": self.bytes}

    def remove(self):
        """They were written to be written: nobody goes on from them."""
        if self._every:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, state):
        if not os.path.isdir(self._folder):
            os.mkdir(self._folder, 0o700)  # ours, and nobody's before us
        path = os.path.join(self._folder, "same.pt" if self._same else "{}.pt".format(state["epoch"]))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # without O_TRUNC: in place
        with os.fdopen(descriptor, "wb") as file:
            torch.save(state, file)
            file.truncate()
            self.bytes = file.tell()
