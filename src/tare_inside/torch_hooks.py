"""The places of torch that are watched in a user's own script; attach.py makes marks of what they tell.

They are: a DataLoader and its batches, the backward pass, optimisers and GradScaler, calls of models, where a model's
gradients are cleared or it is put into eval mode, the making of the script's own (and torchvision's) data sets,
torch.save, and the making of the GPU's context.

The functions in here run in the user's loop: each tells what it saw in one call, and none can raise but for the user.
No hook is put on tensors or single modules, and nothing is synchronised.
"""

import functools
from _thread import get_ident

from tare_inside import marks
from tare_inside.programs import cold_epochs

MOST_SPANS = 1 << 10


def watch_torch(torch, watch):
    """Watch all of them, and tell `watch`."""
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
        if watch.turns is not None:
            watch.take_turns(steps)
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
        begin_ns = now()
        if not watch.trains or steps.gpu is not None:
            try:
                if not watch.trains:
                    steps, begin_ns = watch.begin_without_optimiser(), now()
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
        if watch.turns is not None:
            watch.take_turns(steps, after_optimiser=True)
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
    if make is None or not knows_gpus(torch):
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


def knows_gpus(torch):
    """Was this torch built for GPUs? Asking whether there is one could start CUDA, which is for the script to do."""
    version = getattr(torch, "version", None)
    return bool(getattr(version, "cuda", None) or getattr(version, "hip", None))
