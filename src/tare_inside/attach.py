"""Marks a user's own PyTorch script without a change to it (see steps.py and inference_steps.py for what is marked).

The first process that makes an optimiser marks its training, in the thread that did so; a process that makes none, and
calls a model on batches of a DataLoader, marks its inference. Of distributed processes only the first rank marks.

Whatever goes wrong here is said once on stderr and in `attach.json` beside the marks, and the script runs on unmarked.
What that file says: `watched` (torch came, and nothing to mark so far), `marked`, or `gave up` and why.

The places of torch that are watched: a DataLoader and its batches, the backward pass, optimisers, calls of models.

The functions in here run in the user's loop: each tells what it saw in one call, and none can raise but for the user.
No hook is put on tensors or single modules, and nothing is synchronised.
"""

import atexit
import functools
import os
import sys
from _thread import get_ident

from tare_inside import marks
from tare_inside.programs import cold_epochs
from tare_inside.steps import INFERENCE_MARKS as INFERENCE
from tare_inside.steps import TRAINING_MARKS as TRAINING
from tare_inside.steps import InferenceSteps, Steps


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


ROOM_STEPS = 1 << 15
GPU_MARKS_A_STEP = 2 * 6
ROOM_OTHER = 1 << 17


class Watch(object):
    """What is being watched in this process: inference, until the first optimiser is made; then training."""

    def __init__(self, path, torch=None):
        self._path, self._torch = path, torch
        self._pid = None  # of the process that marks, if it is this one
        self._trains = False  # an optimiser was made
        self.gave_up = False
        self._looking = InferenceSteps(self._open, self._find_gpu)
        self.stop_looking = _do_nothing  # leave the calls of modules alone again
        self.thread = None  # the one that marks
        self.steps = self._looking  # where to tell of events; None while this process does not mark

    def begin(self):
        """An optimiser was made here: mark training from now on, unless another process does."""
        if self._trains or self.gave_up:
            return
        self._trains = True
        self._looking.take_back()
        self.thread = get_ident()
        room = self._open(2 * len(TRAINING))
        self.steps = Steps(room, self._find_gpu) if room else None

    def _open(self, marks_a_step):
        """Open the marks, once, and say how many steps have room in them; 0 if it is not for this process to mark."""
        if self._pid is None:
            if not _is_first_rank(self._torch):
                return 0
            if marks.room() is None:
                try:
                    marks.open_marks(self._path, ROOM_STEPS * self._most_a_step() + ROOM_OTHER)
                except FileExistsError:
                    return 0
            self._pid = os.getpid()
            self.say("marked")
            atexit.register(self.end)
        if self._pid != os.getpid():
            return 0
        # Less than planned if the script has opened them, for marks of its own, before it imported torch.
        return max(1, min(ROOM_STEPS, (marks.room() - ROOM_OTHER // 2) // marks_a_step))

    def _most_a_step(self):
        return 2 * (len(TRAINING) + len(INFERENCE)) + (GPU_MARKS_A_STEP if _knows_gpus(self._torch) else 0)

    def _find_gpu(self):
        """A timeline of the GPU's own, if the script uses one."""
        if not _knows_gpus(self._torch):
            return None
        from tare_inside import activity, gpu

        return gpu.timeline(self._torch.cuda, lambda: activity.of_script(self._torch, os.path.dirname(self._path)))

    def give_up(self, problem):
        """A fault of ours must not become one of the script's: say it once, and get out of the way."""
        if self.gave_up:
            return
        self.gave_up, self.steps = True, None
        self.stop_looking()
        sys.stderr.write("tare: the script runs unmarked from here on: {!r}\n".format(problem))
        if self._pid == os.getpid() or not os.path.exists(self._path):
            self.say("gave up", problem)

    def say(self, state, problem=None):
        """Leave word for the record, in a file beside the marks; where there is no place for it, on we go."""
        reported = {"state": state, "pid": os.getpid()}
        if problem is not None:
            reported["why"] = repr(problem)[:500]
        try:
            from tare_inside.launch import write_whole

            write_whole(os.path.join(os.path.dirname(self._path), "attach.json"), reported)
        except Exception:
            pass

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


def attach(torch, path):
    """Watch this torch, and mark into a file at `path`."""
    watch = Watch(path, torch)
    try:
        if not os.path.exists(os.path.join(os.path.dirname(path), "attach.json")):
            watch.say("watched")
        watch_loaders(torch, watch)
        watch_backward(torch, watch)
        watch_optimisers(torch, watch)
        watch.stop_looking = watch_models(torch, watch, watch.steps)
    except Exception as problem:
        watch.give_up(problem)
    return watch


def _do_nothing():
    """There is nothing to undo."""


def _is_first_rank(torch):
    """Is this the only process, or the first of those that train together?"""
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank() == 0
    return os.environ.get("RANK", "0") == "0"


def _knows_gpus(torch):
    """Was this torch built for GPUs? Asking whether there is one could start CUDA, which is for the script to do."""
    version = getattr(torch, "version", None)
    return bool(getattr(version, "cuda", None) or getattr(version, "hip", None))


def _write_fingerprint(folder):
    """Say what software this very process ran: another interpreter may have another torch."""
    from tare_inside import fingerprint
    from tare_inside.launch import write_whole

    write_whole(os.path.join(folder, "fingerprint.json"), fingerprint.gather())
