"""Marks a user's own PyTorch script without a change to it (see steps.py and inference_steps.py for what is marked).

The first process that makes an optimiser, or goes backward without one, marks its training, in the thread that did so;
a process that does neither, and calls a model on batches of a DataLoader, marks its inference. Of distributed processes
only the first rank marks.

Whatever goes wrong here is said once on stderr and in `attach.json` beside the marks, and the script runs on unmarked.
What that file says in `state`: `started` (Python runs, torch has not come), `watched` (torch came, and nothing was
marked; `reason` says why, once the process has ended), `marked` (and `by` what the steps were told), or `gave up` and
`why`. `stopped` is there if the script was ended before its time (see ending.py for how that is asked for).

The places of torch that are watched: a DataLoader and its batches, the backward pass, optimisers and GradScaler, calls
of models, where a model's gradients are cleared or it is put into eval mode, the making of the script's own (and
torchvision's) data sets, torch.save, and the making of the GPU's context.

The functions in here run in the user's loop: each tells what it saw in one call, and none can raise but for the user.
No hook is put on tensors or single modules, and nothing is synchronised.
"""

import atexit
import functools
import json
import os
import sys
from _thread import get_ident

from tare_inside import BEGAN_NS, ending, marks
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
                iterator._tare_pass = current = steps.iterated(begin_ns, id(self), graded())
                current.made_ns = now()
        except Exception as problem:
            watch.give_up(problem)
        return iterator

    @functools.wraps(next_batch)
    def take(self):
        steps, current = watch.steps, getattr(self, "_tare_pass", None)
        if steps is None or (get_ident() != watch.thread and (current is not None or not _settles(watch))):
            return next_batch(self)
        try:
            if current is None:  # a loader of the script's own makes its iterators past `__iter__` (ultralytics)
                self._tare_pass = current = steps.iterated(now(), id(self), graded())
            steps.finish()
            if not current.trained:
                current.graded = graded()
        except Exception as problem:
            watch.give_up(problem)
        if watch.ending is not None and watch.ending.over:
            watch.stop()
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
    """The first thread that iterates or goes backward is the one that is watched, until an optimiser is made."""
    if watch.thread is None:
        watch.thread = get_ident()
    return watch.thread == get_ident()


def watch_backward(torch, watch):
    go_backward = torch.autograd.backward  # Tensor.backward calls it by this name
    now = marks.now_ns

    @functools.wraps(go_backward)
    def backward(*arguments, **options):
        steps = watch.steps
        if steps is None or watch.goes_backward or (get_ident() != watch.thread and not _settles(watch)):
            watch.passed_by()
            return go_backward(*arguments, **options)
        if watch.ending is not None and _is_over(watch, steps):
            watch.stop()
        try:
            if not watch.trains:
                steps = watch.begin_without_optimiser()
            begin_ns = now()
            if steps is not None and steps.gpu is not None:
                steps.gpu.stamp(begin_ns)
        except Exception as problem:
            watch.give_up(problem)
        if watch.steps is None:
            return go_backward(*arguments, **options)
        watch.goes_backward = True  # activation checkpoints go backward in the middle of it
        try:
            result = go_backward(*arguments, **options)
        finally:
            watch.goes_backward = False
        try:
            steps.went_backward(begin_ns, now())
        except Exception as problem:
            watch.give_up(problem)
        return result

    torch.autograd.backward = backward


def _is_over(watch, steps):
    try:
        return steps.is_over()
    except Exception as problem:
        watch.give_up(problem)
        return False


def watch_gradients(torch, watch):
    """Gradients that are computed without a backward pass: only whether there were any."""
    compute = torch.autograd.grad

    @functools.wraps(compute)
    def grad(*arguments, **options):
        watch.saw_grad = True
        if torch.autograd.grad is grad:
            torch.autograd.grad = compute
        return compute(*arguments, **options)

    torch.autograd.grad = grad


def watch_modes(torch, watch):
    """Where a model's gradients are cleared, and where it goes into eval mode and comes back from it."""
    module_class, now = torch.nn.Module, marks.now_ns
    clear, evaluate, train = module_class.zero_grad, module_class.eval, module_class.train

    @functools.wraps(clear)
    def zero_grad(self, *arguments, **options):
        steps = watch.steps
        if steps is not None and steps.by_backward and watch.thread in (None, get_ident()):
            try:
                steps.cleared(id(self), now())
            except Exception as problem:
                watch.give_up(problem)
        return clear(self, *arguments, **options)

    @functools.wraps(evaluate)
    def eval_watched(self):
        steps = watch.steps
        if steps is not None and get_ident() == watch.thread:
            try:
                if steps.put_aside(now()):
                    module_class.train = train_watched  # until it is called: it calls itself for every part
            except Exception as problem:
                watch.give_up(problem)
        return evaluate(self)

    @functools.wraps(train)
    def train_watched(self, mode=True):
        if not mode or get_ident() != watch.thread:
            return train(self, mode)
        if module_class.train is train_watched:
            module_class.train = train
        result = train(self, mode)
        steps = watch.steps
        if steps is not None:
            try:
                steps.resumed(now())
            except Exception as problem:
                watch.give_up(problem)
        return result

    module_class.zero_grad, module_class.eval = zero_grad, eval_watched


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
            watch_first_forward(torch, watch)
        except Exception as problem:
            watch.give_up(problem)

    torch.optim.Optimizer.__init__ = made


def watch_scaler(torch, watch):
    """A GradScaler that leaves an optimiser's step out has made a step anyway."""
    amp = getattr(torch, "amp", None)
    scaler = getattr(amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    do_step, now = scaler.step, marks.now_ns

    @functools.wraps(do_step)
    def step(self, optimizer, *arguments, **options):
        steps = watch.steps
        if steps is None or get_ident() != watch.thread:
            return do_step(self, optimizer, *arguments, **options)
        begin_ns = now()
        result = do_step(self, optimizer, *arguments, **options)
        try:
            steps.optimised(id(optimizer), begin_ns, now())  # left out where the optimiser has told of it
        except Exception as problem:
            watch.give_up(problem)
        return result

    scaler.step = step


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
        if watch.ending is not None and _is_over(watch, steps):
            watch.stop()
        if arguments or options:
            closure = arguments[0] if arguments else options.get("closure")
            if callable(closure):
                return _step_with_closure(watch, steps, do_step, self, closure, arguments, options)
        begin_ns = now()
        result = do_step(self, *arguments, **options)
        try:
            steps.optimised(id(self), begin_ns, now())
        except Exception as problem:
            watch.give_up(problem)
        return result

    step._tare_watches = True
    optimiser.step = step


def _step_with_closure(watch, steps, do_step, optimiser, closure, arguments, options):
    """What a closure does is forward and backward: it is left out of the optimiser's time."""
    now, pieces = marks.now_ns, []
    counts = True  # what the optimiser does before its first closure, if that is not the first thing in the step

    def timed(*inner, **others):
        begin_ns = now()
        try:
            if counts or pieces:
                pieces.append((since_ns[0], begin_ns))
                steps.closure_begins(begin_ns)
        except Exception as problem:
            watch.give_up(problem)
        result = closure(*inner, **others)
        since_ns[0] = now()
        return result

    try:
        counts = steps.calls_closure(id(optimiser))
    except Exception as problem:
        watch.give_up(problem)
    if arguments:
        arguments = (timed,) + arguments[1:]
    else:
        options = dict(options, closure=timed)
    begin_ns = now()
    since_ns = [begin_ns]
    result = do_step(optimiser, *arguments, **options)
    end_ns = now()
    try:
        steps.optimised(id(optimiser), begin_ns, end_ns, pieces + [(since_ns[0], end_ns)])
    except Exception as problem:
        watch.give_up(problem)
    return result


def watch_models(torch, watch, looking):
    """Watch calls of models while nothing is trained; returns how to stop that, for it lies in every module's way."""
    module_class, call, now = torch.nn.Module, torch.nn.Module.__call__, marks.now_ns
    graded = torch.is_grad_enabled

    @functools.wraps(call)
    def call_watched(self, *arguments, **options):
        if not looking.awaits_model or get_ident() != watch.thread:
            if looking.awaits_forward and self.training and watch.thread in (None, get_ident()):
                try:
                    looking.forward_begins(self, graded(), now())  # perhaps of training, without a DataLoader
                except Exception as problem:
                    watch.give_up(problem)
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


def watch_first_forward(torch, watch):
    """Watch for the first forward pass of training, and get out of its way: a loop without a DataLoader begins there.

    Not where something is compiled: torch.compile would compile what lies in its way too, and again without it.
    """
    module_class, graded = torch.nn.Module, torch.is_grad_enabled
    steps = watch.steps
    if steps is None or watch.compiles or not steps.awaits_forward():
        return
    call = module_class.__call__

    @functools.wraps(call)
    def call_watched(self, *arguments, **options):
        if module_class.__call__ is not call_watched:
            return call(self, *arguments, **options)
        module_class.__call__ = call  # what this one calls are its parts
        try:
            if watch.steps is steps and get_ident() == watch.thread and self.training and graded():
                if next(self.parameters(), None) is not None:
                    steps.forward_begins(marks.now_ns())
        except Exception as problem:
            watch.give_up(problem)
        try:
            return call(self, *arguments, **options)
        finally:
            if watch.steps is steps and steps.awaits_forward() and module_class.__call__ is call and not watch.compiles:
                module_class.__call__ = call_watched

    def stop():
        if module_class.__call__ is call_watched:
            module_class.__call__ = call

    module_class.__call__, watch.stop_looking = call_watched, stop


def watch_compiling(torch, watch):
    make = getattr(torch, "compile", None)
    if make is None:
        return

    @functools.wraps(make)
    def compiled(*arguments, **options):
        if not watch.compiles:
            watch.compiles = True
            watch.awaits_no_forward()
        return make(*arguments, **options)

    torch.compile = compiled


def watch_device(torch, watch):
    """Watch the GPU's context being made, once: whatever needs it first calls `_lazy_init` by this name."""
    cuda = getattr(torch, "cuda", None)
    make = getattr(cuda, "_lazy_init", None)
    if make is None or not _knows_gpus(torch):
        return
    now = marks.now_ns

    @functools.wraps(make)
    def made(*arguments, **options):
        if watch.device_ns is not None or cuda.is_initialized():
            return make(*arguments, **options)
        begin_ns = now()
        result = make(*arguments, **options)
        watch.device_ns = (begin_ns, now())
        if cuda._lazy_init is made:
            cuda._lazy_init = make
        return result

    cuda._lazy_init = made


def watch_data_sets(torch, watch):
    """Watch classes of data sets that are defined from now on being made; one inside another counts once."""
    from torch.utils.data import Dataset

    plain = Dataset.__init_subclass__

    def defined(cls, *arguments, **options):
        plain(*arguments, **options)
        make = cls.__dict__.get("__init__")
        if make is not None:
            cls.__init__ = _timed(make, watch, watch.data_sets_ns)

    Dataset.__init_subclass__ = classmethod(defined)


def watch_saves(torch, watch):
    torch.save = _timed(torch.save, watch, watch.saves_ns)


def _timed(call, watch, spans):
    """The same; when it began and ended is kept in `spans`, of the outermost call in the thread that marks."""
    now = marks.now_ns

    @functools.wraps(call)
    def timed(*arguments, **options):
        if watch.timing or len(spans) >= MOST_SPANS or watch.thread not in (None, get_ident()):
            return call(*arguments, **options)
        watch.timing = True
        begin_ns = now()
        try:
            return call(*arguments, **options)
        finally:
            spans.append((begin_ns, now()))
            watch.timing = False

    return timed


MOST_SPANS = 1 << 10
ROOM_STEPS = 1 << 15
GPU_MARKS_A_STEP = 2 * 6
ROOM_OTHER = 1 << 17


class Watch(object):
    """What is being watched in this process: inference, until the first optimiser is made; then training."""

    latest = None  # the one of this process, where torch has come

    def __init__(self, path, torch=None):
        self._path, self._torch = path, torch
        self._born = os.getpid()
        self._pid = None  # of the process that marks, if it is this one
        self.trains = False  # an optimiser was made, or a backward pass was done
        self.goes_backward = False  # at this moment
        self.compiles = False  # torch.compile was called
        self.saw_grad = self.saw_thread = False  # torch.autograd.grad was called; another thread went backward
        self.gave_up = self._stopped = self._ended = False
        self.ending = None  # when the script is to be ended, if before its time
        self._looking = InferenceSteps(self._open, self._find_gpu)
        self.stop_looking = _do_nothing  # leave the calls of modules alone again
        self.thread = None  # the one that marks
        self.steps = self._looking  # where to tell of events; None while this process does not mark
        self._by = None
        self.loaded_ns = marks.now_ns()  # torch is there
        self.device_ns = None  # begin and end of making the GPU's context
        self.data_sets_ns, self.saves_ns = [], []  # and of each data set that was made, and of what was saved
        self.timing = False  # at this moment one of them

    def begin(self):
        """An optimiser was made here: mark training from now on, unless another process does."""
        if self.gave_up or self._stopped:
            return
        if not self.trains:
            self._looking.take_back()
            self.thread = get_ident()
            self._begin_training()
        elif self.steps is not None and self.steps.by_backward:
            self.thread = get_ident()
        if self.steps is not None and self.steps.by_backward:
            self.steps.take_back()

    def awaits_no_forward(self):
        """Something is compiled: leave calls of modules alone, unless they are watched for inference."""
        self._looking.awaits_forward = False
        if self.trains:
            self.stop_looking()

    def begin_without_optimiser(self):
        """A backward pass begins, and no optimiser was made: mark training anyway; the steps, if any."""
        self.stop_looking()
        self._begin_training()
        if self.steps is not None:
            self._looking.hand_over(self.steps)
        else:
            self._looking.take_back()
        return self.steps

    def _begin_training(self):
        self.trains = True
        room = self._open(2 * len(TRAINING))
        if room:
            self.steps = Steps(room, self._find_gpu, self.ending)
        else:  # another process marks; count, if this one is to be ended
            self.steps = Steps(1, None, self.ending) if self.ending is not None else None

    def passed_by(self):
        """A backward pass that is not watched: training that goes on after it was ended, or in another thread."""
        if self._stopped and os.getpid() == self._born:
            ending.leave_at_once()
        self.saw_thread = self.saw_thread or not self.trains

    def stop(self):
        """The script is to be ended: here."""
        if self.steps is None:
            return
        self._stopped = True
        if self._pid == os.getpid():
            sys.stderr.write("tare: ended after {} steps, as requested.\n".format(self.ending.reported["steps"]))
        self._close()
        self.steps = None  # also where another process marks
        ending.leave()

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

    def say(self, state, problem=None, **facts):
        """Leave word for the record, in a file beside the marks; where there is no place for it, on we go."""
        reported = dict(facts, state=state, pid=os.getpid())
        if problem is not None:
            reported["why"] = repr(problem)[:500]
        try:
            from tare_inside.launch import write_whole

            write_whole(os.path.join(os.path.dirname(self._path), "attach.json"), reported)
        except Exception:
            pass

    def _close(self):
        """Mark what is still open."""
        if self.steps is None or os.getpid() != self._pid:
            return
        steps, self.steps = self.steps, None
        try:
            steps.close()
            marks.interval("imports", -1, BEGAN_NS, self.loaded_ns)
            if self.device_ns is not None:
                marks.interval("device", -1, *self.device_ns)
            for name, spans in (("data_open", self.data_sets_ns), ("checkpoint", self.saves_ns)):
                for begin_ns, end_ns in spans:
                    marks.interval(name, -1, begin_ns, end_ns)
            marks.point("exit")
            if steps.steps():
                told_by = "backward" if steps.by_backward else "optimiser"
                self._by = "inference" if steps is self._looking else told_by
                stopped = {"stopped": self.ending.reported} if self._stopped else {}
                self.say("marked", by=self._by, **stopped)
        except Exception as problem:
            self.give_up(problem)

    def end(self):
        """The process ends: mark what is still open, and say what software this was, or why nothing was marked."""
        if os.getpid() != self._born or self.gave_up or self._ended:
            return
        self._ended = True
        try:
            self._close()
            if self._by is not None:
                _write_fingerprint(os.path.dirname(self._path))
            elif not self.gave_up and (self._pid == self._born or not os.path.exists(self._path)):
                self.say("watched", reason=self._reason())
        except Exception as problem:
            self.give_up(problem)

    def has_marked(self):
        """Whether steps were found, here or in another process."""
        return self._by is not None or (self._pid is None and os.path.exists(self._path))

    def _reason(self):
        """Why no step was found; what another process has found out counts for more than that this one did nothing."""
        if self.saw_thread:
            return "other-thread"
        if self.saw_grad:
            return "grad-only"
        return _reason_of_another(os.path.dirname(self._path)) or "no-backward"


def _reason_of_another(folder):
    try:
        with open(os.path.join(folder, "attach.json")) as file:
            return json.load(file).get("reason")
    except Exception:
        return None


def attach(torch, path):
    """Watch this torch, and mark into a file at `path`."""
    watch = Watch.latest = Watch(path, torch)
    try:
        if not os.path.exists(path):
            watch.say("watched")
        atexit.register(watch.end)
        watch.ending = watch.steps.ending = ending.from_environment(os.path.dirname(path))
        watch_loaders(torch, watch)
        watch_backward(torch, watch)
        watch_gradients(torch, watch)
        watch_modes(torch, watch)
        watch_optimisers(torch, watch)
        watch_scaler(torch, watch)
        watch_compiling(torch, watch)
        watch_device(torch, watch)
        watch_data_sets(torch, watch)
        watch_saves(torch, watch)
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
