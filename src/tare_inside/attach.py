"""Marks a user's own PyTorch script without a change to it (see steps.py for what is marked).

Four places of torch are watched: iterating a DataLoader, taking a batch from it, the backward pass, the optimiser's
step. No hook is put on modules or tensors, nothing is synchronised: on a GPU the times are those of the host.

The first process that makes an optimiser marks, and in it the thread that did so. Whatever goes wrong here is said
once on stderr and the script runs on unmarked.
"""

import atexit
import functools
import os
import sys
from _thread import get_ident

from tare_inside import marks
from tare_inside.steps import USUAL, Steps

ROOM_STEPS = 1 << 15
ROOM_OTHER = 1 << 17


class Watch(object):
    """What is being watched in this process: nothing until the first optimiser is made."""

    def __init__(self, path):
        self._path = path
        self._settled = False  # this process marks, or it is known that it does not
        self._pid = None
        self.thread = None  # the one that marks
        self.steps = None  # where to tell of events; None while this process does not mark

    def begin(self):
        """An optimiser was made here: mark from now on, unless another process does or this is not the first rank."""
        if self._settled:
            return
        self._settled = True
        if os.environ.get("RANK", "0") != "0":
            return
        try:
            marks.open_marks(self._path, ROOM_STEPS * 2 * len(USUAL) + ROOM_OTHER)
        except FileExistsError:
            return
        self.thread, self._pid = get_ident(), os.getpid()
        self.steps = Steps(ROOM_STEPS)
        atexit.register(self.end)

    def give_up(self, problem):
        """A fault of ours must not become one of the script's: say it once, and get out of the way."""
        self._settled, self.steps = True, None
        marks.close_marks()
        sys.stderr.write("tare: the script runs unmarked from here on: {!r}\n".format(problem))

    def end(self):
        """Mark what is still open, and say what software this was."""
        if self.steps is None or os.getpid() != self._pid:
            return
        steps, self.steps = self.steps, None
        try:
            steps.close()
            _write_fingerprint(os.path.dirname(self._path))
        except Exception as problem:
            self.give_up(problem)
        marks.close_marks()


def attach(torch, path):
    """Watch this torch, and mark into a file at `path`."""
    watch = Watch(path)
    try:
        _watch_loaders(watch)
        _watch_backward(torch, watch)
        _watch_optimisers(torch, watch)
    except Exception as problem:
        watch.give_up(problem)
    return watch


# The functions below run in the user's loop: each tells what it saw in one call, and none can raise but for the user.


def _watch_loaders(watch):
    from torch.utils.data import dataloader

    make_iterator, next_batch = dataloader.DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__
    now = marks.now_ns

    @functools.wraps(make_iterator)
    def iterate(self):
        steps = watch.steps
        if steps is None or get_ident() != watch.thread:
            return make_iterator(self)
        begin_ns = now()
        iterator = make_iterator(self)
        try:
            if isinstance(iterator, dataloader._BaseDataLoaderIter):
                iterator._tare_pass = steps.iterated(begin_ns)
        except Exception as problem:
            watch.give_up(problem)
        return iterator

    @functools.wraps(next_batch)
    def take(self):
        steps, current = watch.steps, getattr(self, "_tare_pass", None)
        if steps is None or current is None or get_ident() != watch.thread:
            return next_batch(self)
        try:
            steps.finish()
        except Exception as problem:
            watch.give_up(problem)
        begin_ns = now()
        try:
            batch = next_batch(self)
        except StopIteration:
            try:
                steps.exhausted(current, now())
            except Exception as problem:
                watch.give_up(problem)
            raise
        try:
            steps.fetched(current, begin_ns, now())
        except Exception as problem:
            watch.give_up(problem)
        return batch

    dataloader.DataLoader.__iter__ = iterate
    dataloader._BaseDataLoaderIter.__next__ = take


def _watch_backward(torch, watch):
    go_backward = torch.autograd.backward  # Tensor.backward calls it by this name
    now = marks.now_ns

    @functools.wraps(go_backward)
    def backward(*arguments, **options):
        steps = watch.steps
        if steps is None or get_ident() != watch.thread:
            return go_backward(*arguments, **options)
        begin_ns = now()
        result = go_backward(*arguments, **options)
        try:
            steps.went_backward(begin_ns, now())
        except Exception as problem:
            watch.give_up(problem)
        return result

    torch.autograd.backward = backward


def _watch_optimisers(torch, watch):
    make = torch.optim.Optimizer.__init__

    @functools.wraps(make)
    def made(self, *arguments, **options):
        make(self, *arguments, **options)
        try:
            watch.begin()
            _watch_steps_of(type(self), watch)
        except Exception as problem:
            watch.give_up(problem)

    torch.optim.Optimizer.__init__ = made


def _watch_steps_of(optimiser, watch):
    """Watch one class of optimisers: each has a step() of its own, and schedulers want it to stay a method."""
    do_step = optimiser.step
    if getattr(do_step, "_tare_watches", False):
        return
    now = marks.now_ns

    @functools.wraps(do_step)
    def step(self, *arguments, **options):
        steps = watch.steps
        if steps is None or get_ident() != watch.thread:
            return do_step(self, *arguments, **options)
        begin_ns = now()
        result = do_step(self, *arguments, **options)
        try:
            steps.optimised(id(self), begin_ns, now())
        except Exception as problem:
            watch.give_up(problem)
        return result

    step._tare_watches = True
    optimiser.step = step


def _write_fingerprint(folder):
    """Say what software this very process ran: another interpreter may have another torch."""
    from tare_inside import fingerprint
    from tare_inside.launch import write_whole

    write_whole(os.path.join(folder, "fingerprint.json"), fingerprint.gather())
