"""The places of torch that are watched: a DataLoader and its batches, the backward pass, optimisers, calls of models.

The functions in here run in the user's loop: each tells what it saw in one call, and none can raise but for the user.
No hook is put on tensors or single modules, and nothing is synchronised.
"""

import functools
from _thread import get_ident

from tare_inside import cold_epochs, marks


def watch_loaders(torch, watch):
    from torch.utils.data import dataloader

    now, graded = marks.now_ns, torch.is_grad_enabled
    make_iterator, next_batch = dataloader.DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__
    freshen = cold_epochs.before_each_pass()

    @functools.wraps(make_iterator)
    def iterate(self):
        steps = watch.steps
        if steps is None or (get_ident() != watch.thread and not _settles(watch)):
            return make_iterator(self)
        try:
            freshen()
        except Exception as problem:
            watch.give_up(problem)
        begin_ns = now()
        iterator = make_iterator(self)
        try:
            if isinstance(iterator, dataloader._BaseDataLoaderIter):
                iterator._tare_pass = steps.iterated(begin_ns, id(self), graded())
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


def _settles(watch):
    """The first thread that iterates over a DataLoader is the one that is watched, until an optimiser is made."""
    if watch.thread is None:
        watch.thread = get_ident()
    return watch.thread == get_ident()


def watch_backward(torch, watch):
    go_backward = torch.autograd.backward  # Tensor.backward calls it by this name
    now = marks.now_ns

    @functools.wraps(go_backward)
    def backward(*arguments, **options):
        steps = watch.steps
        if steps is None or get_ident() != watch.thread:
            return go_backward(*arguments, **options)
        begin_ns = now()
        if steps.gpu is not None:
            try:
                steps.gpu.stamp(begin_ns)
            except Exception as problem:
                watch.give_up(problem)
        result = go_backward(*arguments, **options)
        try:
            steps.went_backward(begin_ns, now())
        except Exception as problem:
            watch.give_up(problem)
        return result

    torch.autograd.backward = backward


def watch_optimisers(torch, watch):
    make = torch.optim.Optimizer.__init__

    @functools.wraps(make)
    def made(self, *arguments, **options):
        try:
            watch.stop_looking()  # before torch.compile's machinery comes with the first optimiser, and looks around
        except Exception as problem:
            watch.give_up(problem)
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


def watch_models(torch, watch, looking):
    """Watch calls of models while nothing is trained; returns how to stop that, for it lies in every module's way."""
    module_class, call, now = torch.nn.Module, torch.nn.Module.__call__, marks.now_ns
    graded = torch.is_grad_enabled

    @functools.wraps(call)
    def call_watched(self, *arguments, **options):
        if not looking.awaits_model or get_ident() != watch.thread:
            return call(self, *arguments, **options)
        try:
            counts = (not self.training or not graded()) and looking.is_model(self)
        except Exception as problem:
            counts = False
            watch.give_up(problem)
        if not counts:
            return call(self, *arguments, **options)
        looking.awaits_model = False  # what this one calls are its parts
        begin_ns = now()
        try:
            result = call(self, *arguments, **options)
        except BaseException:
            looking.awaits_model = True
            raise
        try:
            looking.called(begin_ns, now())
        except Exception as problem:
            watch.give_up(problem)
        return result

    def stop():
        looking.awaits_model = False
        if module_class.__call__ is call_watched:
            module_class.__call__ = call

    module_class.__call__ = call_watched
    return stop
