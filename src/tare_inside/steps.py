"""From what can be seen of someone's training loop (fetches, backward passes, optimiser steps) to marks per step.

A step ends with an optimiser step. It begins where the one before it ended, or, in a new pass over the data, with the
first fetch; the first step of a loop without a DataLoader begins with its forward pass, the first call of a model that
is in training mode with gradients on. In it, `compute` is from the arrival of a batch to the end of the optimiser step
(with several batches a step: to the next fetch), `forward` from the batch to the backward pass. A batch that no
backward pass follows was not trained on and is in no step. Two different optimisers may step in one step; the same one
twice makes two steps. A pass over the data that had steps is an `epoch`; one that was never trained on is an
`evaluate`. So is, in a loop without a DataLoader, the time from `model.eval()` to `model.train()`, unless it comes with
every step. What an optimiser spends in its closure is forward and backward, and not `optimiser`.

Until an optimiser has stepped, a step is told by backward passes: with a DataLoader it is a batch, to the next fetch;
else it ends with the next `zero_grad()` of the same model, or, where none is called, with each backward pass. These
steps are taken back when an optimiser steps after all: several backward passes were then one step.

From what can be seen of someone's inference loop (fetches, calls of a model) to marks per step.

Only while no optimiser was made: a process that makes one trains, and what was marked here is taken back (its passes
over the data stay, as `evaluate`). A step is one batch: from where the step before it ended, or from its fetch, to the
next fetch. In it, `inference` is from the first call of a model to the end of the last, `compute` from the arrival of
the batch to the same end. A batch that no call of a model follows is in no step. A call counts when it is nobody's
part, the module has parameters, and gradients are off or the module is in eval mode.
"""

import weakref

from tare_inside import marks

TRAINING_MARKS = ("fetch", "forward", "backward", "optimiser", "compute", "step")
GPU_LOOKS = 3  # so many steps are enough to see whether the script has begun to use a GPU
SURE_STEPS = 64  # so many backward passes without an optimiser's step are seldom a single step
MOST_KEPT = 1024  # backward passes of a single step, before the first optimiser's step
NEAR_NS = 10 * 1000 * 1000  # an iterator that was made so long before its first batch was not made for it
NOTHING = (0, 0)  # a mark at time zero was never written


class Pass(object):
    """One iteration over a DataLoader."""

    __slots__ = (
        "begin_ns",
        "made_ns",
        "loader",
        "graded",
        "steps",
        "closed",
        "started",
        "trained",
        "over",
        "came_ns",
        "came_in",
    )

    def __init__(self, begin_ns, loader, graded):
        self.begin_ns = self.made_ns = begin_ns  # the second is when the iterator was there
        self.loader = loader  # its identity only: nothing here keeps a loader alive
        self.graded = graded  # gradients were on when it began, or when its last batch was asked for
        self.steps = 0
        self.closed = False
        self.started = False
        self.over = False  # it has no more batches, but those that it gave are still in use
        self.trained = False  # a backward pass followed one of its batches
        self.came_ns = begin_ns  # when its last batch came
        self.came_in = 0  # the step that was going on then


class Steps(object):
    """Turns events into marks. Marks are written when a step is known to be over: at the next fetch, or at the end."""

    def __init__(self, room, find_gpu=None, ending=None):
        self._write = marks.group(TRAINING_MARKS, room)
        self.ending = ending  # when the script is to be ended; None: never
        self.gpu = None  # a gpu.Timeline, once the script is seen to use a GPU
        self._find_gpu, self._gpu_looks = find_gpu, GPU_LOOKS if find_gpu else 0
        self.by_backward = True  # until an optimiser has stepped
        self.has_optimiser = False  # one was made
        self._kept, self._held = [], []  # steps and epochs that were told by backward passes
        self._clears, self._cleared = False, []  # a model's gradients were ever cleared by name; in this step
        self._step = self._epoch = 0
        self._usual = 0  # optimiser steps in the last step
        self._pass = None  # that gave the last batch
        self._trained = None  # the last one with a step in it
        self._trained_until_ns = 0
        self._unproven = []  # passes that gave batches, none of which was trained on so far
        self._follows_ns = None  # end of the last step, while the next one follows directly
        self._since_ns = None  # end of the last event: where a forward pass would begin
        self._forward_seen = False  # the first one
        self._steady = False  # steps are told by optimisers, and nothing but marks is made of them
        self._aside_ns, self._aside_at = None, 0  # when the model was put aside for an evaluation, after which step
        self._forget()

    def steps(self):
        """How many steps are over."""
        return self._step

    def _forget(self):
        """Begin anew: nothing is known of a step that is going on."""
        self._fetches, self._forwards, self._backwards, self._optimisers = [], [], [], []
        self._stepped, self._sources = [], []
        if self._cleared:
            self._cleared = []

    def _leave_out(self):
        """What was seen since the last step is in none."""
        self._forget()
        if self.gpu is not None:
            self.gpu.forget()

    def iterated(self, begin_ns, loader, graded):
        """A pass over a DataLoader begins."""
        self.finish()
        if self._pass is not None and self._pass.over and not self._pass.closed:
            self._leave_out()  # no step came
            self._close(self._pass, self._pass.came_ns)
        self._follows_ns = self._aside_ns = None
        self._kept = []
        return Pass(begin_ns, loader, graded)

    def resume(self, current, fetch):
        """This batch came before it was known that it would be trained on."""
        self._pass = current
        self._unproven.append(current)
        self._fetches.append(fetch)
        self._sources.append(current)
        self._since_ns = fetch[1]

    def fetched(self, current, begin_ns, end_ns):
        """A batch of this pass was waited for."""
        if len(self._backwards) < len(self._fetches) and self._is_left_behind(current):
            self._leave_out()
            self._follows_ns = None
        if not current.started:
            current.started = True
            self._unproven.append(current)
            current.begin_ns = begin_ns = _asked_ns(current, begin_ns)
            self._follows_ns = None
            if self._fetches:  # another loader's batch came after this one was begun
                begin_ns = max(begin_ns, self._fetches[-1][1])
        elif self._unproven and current.graded and current.came_in < self._step:
            self._prove((current,))  # it gives batches on both sides of a step
        elif not current.trained and (current.came_in < self._step or current not in self._unproven):
            self._evaluate_again(current, begin_ns)
        self._pass, current.came_in = current, self._step
        current.came_ns = self._since_ns = end_ns
        self._fetches.append((begin_ns, end_ns))
        self._sources.append(current)
        if self.gpu is not None:
            self.gpu.waited(begin_ns, end_ns)
            self.gpu.stamp(end_ns)

    def _evaluate_again(self, current, begin_ns):
        """An endless loader gives batches for the next evaluation: the one before it ended with its last batch."""
        if current in self._unproven:
            self._mark_evaluation(current, current.came_ns)
        else:
            self._unproven.append(current)
        current.begin_ns, self._follows_ns = begin_ns, None

    def _is_left_behind(self, current):
        """Was the last batch, which nobody trained on, for something else than what this one is for?"""
        last = self._pass
        if last is current:
            return not current.graded  # several batches may be taken before the first of them is trained on
        if last.graded != current.graded:
            return True
        if current.started:
            return False  # two loaders side by side
        if last.loader == current.loader:
            return True  # it was left early, and here it is again
        return not last.trained and current.begin_ns >= self._fetches[-1][1]

    def exhausted(self, current, now_ns):
        """The pass is over."""
        self.finish()
        if current.trained and self._pass is current and (self._fetches or self._backwards):
            current.over, current.came_ns = True, now_ns  # it may have been asked ahead: its last step is still to come
            return
        self._follows_ns = None
        if self._pass is current:
            self._leave_out()
        if current in self._unproven:
            self._unproven.remove(current)
            self._mark_evaluation(current, now_ns)
        self._close(current, now_ns)

    def went_backward(self, begin_ns, end_ns):
        """A backward pass was done."""
        if self.by_backward and self._backwards and not self._fetches and not self._clears:
            self._end(self._backwards[-1][1])
        if self._unproven:
            self._prove(self._sources)
        if self._since_ns is not None:
            self._forwards.append((self._since_ns, begin_ns))
        self._backwards.append((begin_ns, end_ns))
        self._since_ns, self._aside_ns = end_ns, None
        if self.gpu is not None:
            self.gpu.stamp(end_ns)

    def cleared(self, which, now_ns):
        """A model's gradients were cleared: where no optimiser steps, this is where a step may end."""
        if not self.by_backward:
            return
        first, self._clears = not self._clears, True
        if not self._fetches:
            if self._backwards and (first or which in self._cleared):
                self._end(now_ns)
            if not self._backwards:
                self._since_ns = now_ns
        self._cleared.append(which)

    def put_aside(self, now_ns):
        """A model goes into eval mode: does an evaluation begin here? Not in a step, nor with each step."""
        if self._fetches:
            return False  # passes over the data tell that
        self.finish()
        steps, self._aside_at = self._step - self._aside_at, self._step
        if self._backwards or steps < 2:
            return False
        self._aside_ns = now_ns
        return True

    def resumed(self, now_ns):
        """It is in training mode again."""
        if self._fetches or self._backwards:
            return
        if self._aside_ns is not None:
            marks.interval("evaluate", self._step - 1, self._aside_ns, now_ns)
            self._aside_ns = self._follows_ns = None
        if self._follows_ns is None:
            self._since_ns = now_ns

    def calls_closure(self, which):
        """An optimiser's step begins that will call a closure; does it come right after a backward pass?"""
        if which in self._stepped:
            self.finish()
        return bool(self._backwards) and self._since_ns == self._backwards[-1][1]

    def closure_begins(self, begin_ns):
        """What the optimiser did so far was not part of a forward pass."""
        self._since_ns = begin_ns

    def awaits_forward(self):
        """Is the first forward pass still to come? Where there is no DataLoader, only that tells where a step began."""
        return not (self._forward_seen or self._step or self._backwards)

    def forward_begins(self, begin_ns):
        """A model that trains is called for the first time since an optimiser was made."""
        self._forward_seen = True
        if not self._fetches and not self._step and not self._backwards:
            self._since_ns = begin_ns

    def optimised(self, which, begin_ns, end_ns, pieces=None):
        """An optimiser stepped; `pieces` of it, if its closures are to be left out."""
        if self._optimisers and self._optimisers[-1][0] >= (pieces[0][0] if pieces else begin_ns):
            return  # a wrapper around an optimiser that has reported already
        if self.by_backward:
            self._go_by_optimisers()
        if which in self._stepped:
            self.finish()
        self._stepped.append(which)
        if pieces:
            self._optimisers.extend(pieces)
        else:
            self._optimisers.append((begin_ns, end_ns))
        self._since_ns = end_ns
        if self.gpu is not None:
            self.gpu.stamp(end_ns)

    def _go_by_optimisers(self):
        """An optimiser steps after all: the steps so far were parts of this one, or no training."""
        self.by_backward = False
        kept, self._kept, self._held = self._kept, [], []
        if self._step:
            self._write.withdraw()
            self._step = self._epoch = 0
            self._trained, self._aside_at = None, 0
            for current in self._sources:
                current.steps, current.closed = 0, False
            if self._pass is not None:
                self._pass.came_in = 0
        if kept:
            self._follows_ns = kept[0][0]
            for place, events in enumerate((self._fetches, self._forwards, self._backwards, self._sources), 1):
                events[:0] = [event for step in kept for event in step[place]]

    def take_back(self):
        """An optimiser is made: what came before it was no training."""
        self.has_optimiser = True
        self._kept = []

    def close(self):
        """The program ends."""
        if self.by_backward and self._backwards:
            self._end(self._backwards[-1][1])  # what came after it may be anything
        self.finish()
        for current in self._unproven:
            self._mark_evaluation(current, current.came_ns)
        if self._trained is not None:
            self._close(self._trained, self._trained_until_ns)
        for epoch in self._held:
            marks.interval("epoch", *epoch)
        if self.gpu is not None:
            self.gpu.close()

    def is_over(self):
        """Is the script to be ended? Asked before a backward pass or an optimiser's step."""
        self.finish_usual()
        return self.ending.over

    def finish_usual(self):
        """Without a fetch that would tell: a step is over when as many optimisers have stepped as in the last one."""
        if self._optimisers and not self._fetches and 0 < self._usual <= len(self._stepped):
            self.finish()

    def finish(self):
        """If an optimiser has stepped, the step is over: mark it. Called before a fetch is timed.

        A step of one batch, one backward pass and one optimiser step, like those before it, is marked in here: what is
        called once per step is never in the processor's caches, and each further function costs a microsecond.
        """
        optimisers, current = self._optimisers, self._trained
        if not optimisers:
            if self.by_backward and self._backwards:
                self._end(marks.now_ns())
            return
        (optimiser_ns, end_ns), begin_ns = optimisers[-1], self._follows_ns
        fetches, forwards, backwards = self._fetches, self._forwards, self._backwards
        if (
            not (self._steady and len(fetches) == len(forwards) == len(backwards) == len(optimisers) == 1)
            or (begin_ns is None or self._since_ns != end_ns or self._pass is not current)
            or (current.over or self._unproven)
        ):
            self._end(end_ns)
            return
        (fetch_ns, came_ns), (forward_ns, _), (backward_ns, back_ns) = fetches[0], forwards[0], backwards[0]
        self._write(
            self._step, fetch_ns, came_ns, forward_ns, backward_ns, backward_ns, back_ns, optimiser_ns, end_ns,
            came_ns, end_ns, begin_ns, end_ns,
        )  # fmt: skip
        self._step += 1
        current.steps += 1
        self._follows_ns = self._trained_until_ns = end_ns
        self._fetches, self._forwards, self._backwards, self._optimisers = [], [], [], []
        self._stepped, self._sources = [], []

    def _end(self, end_ns):
        later = ([], []) if self.by_backward or self._since_ns == end_ns else self._cut(end_ns)
        begin_ns = self._begin_ns()
        if begin_ns is not None:
            self._mark(begin_ns, end_ns)
            self._mark_on_gpu(end_ns)
            self._step += 1
            self._credit(end_ns)
            if self._unproven:
                self._settle()
            if self.by_backward and self.has_optimiser:
                self._keep(begin_ns)
            elif self.ending is not None:
                self.ending.stepped(self._step, begin_ns, end_ns)
        self._follows_ns, self._usual = end_ns, len(self._stepped)
        self._forget()
        self._forwards, self._backwards = later
        nothing_else = self.gpu is None and not self._gpu_looks and self.ending is None
        self._steady = nothing_else and not self.by_backward and self._trained is not None

    def _keep(self, begin_ns):
        """Until it is known whether an optimiser steps."""
        if len(self._kept) < MOST_KEPT:
            self._kept.append((begin_ns, self._fetches, self._forwards, self._backwards, self._sources))

    def _begin_ns(self):
        if self._follows_ns is not None:
            return self._follows_ns
        if self._fetches:
            return self._fetches[0][0]
        seen = self._forwards or self._backwards
        return seen[0][0] if seen else None

    def _cut(self, end_ns):
        """Take out what came after the last optimiser step; it belongs to the next step."""
        later = []
        for events in (self._forwards, self._backwards):
            at = len(events)
            while at and events[at - 1][0] >= end_ns:
                at -= 1
            later.append(events[at:])
            del events[at:]
        return later

    def _mark(self, begin_ns, end_ns):
        fetches, forwards, backwards, optimisers = self._fetches, self._forwards, self._backwards, self._optimisers
        if len(forwards) == len(backwards) == len(optimisers) == 1 and len(fetches) < 2:
            fetch, came_ns = (fetches[0], fetches[0][1]) if fetches else (NOTHING, begin_ns)
            times_ns = fetch + forwards[0] + backwards[0] + optimisers[0] + (came_ns, end_ns, begin_ns, end_ns)
            self._write(self._step, *times_ns)
            return
        starts_ns = [came_ns for _, came_ns in fetches] or [begin_ns]
        ends_ns = [went_ns for went_ns, _ in fetches[1:]] + [end_ns]
        columns = (fetches, forwards, backwards, optimisers, list(zip(starts_ns, ends_ns)), [(begin_ns, end_ns)])
        for row in range(max(map(len, columns))):
            times_ns = ()
            for events in columns:
                times_ns += events[row] if row < len(events) else NOTHING
            self._write(self._step, *times_ns)

    def _mark_on_gpu(self, end_ns):
        """The same step as the GPU saw it; until one is in use, look for it after each of the first steps."""
        if self.by_backward and self._step < SURE_STEPS:
            return  # what is marked of a GPU cannot be taken back
        if self.gpu is not None:
            parts = (("forward", self._forwards), ("backward", self._backwards), ("optimiser", self._optimisers))
            self.gpu.stepped(self._step, parts, end_ns, self._fetches[0][1] if self._fetches else None)
        elif self._gpu_looks:
            self._gpu_looks -= 1
            self.gpu = self._find_gpu()

    def _credit(self, end_ns):
        """Count the step for the pass that it belongs to; a pass that was left early ends with its last step."""
        current = self._sources[0] if self._sources else self._trained or self._pass
        if current is None:
            return
        if self._trained is not None and self._trained is not current:
            self._close(self._trained, self._trained_until_ns)
        current.steps += 1
        self._trained, self._trained_until_ns = current, end_ns
        if current.over:
            self._close(current, end_ns)

    def _close(self, current, end_ns):
        if current.steps and not current.closed:
            if self.by_backward:
                self._held.append((self._epoch, current.begin_ns, end_ns))
            else:
                marks.interval("epoch", self._epoch, current.begin_ns, end_ns)
            self._epoch += 1
        current.closed = True

    def _prove(self, passes):
        """These are trained on."""
        for current in passes:
            current.trained = True
        self._unproven = [current for current in self._unproven if not current.trained]

    def _settle(self):
        """A pass that gave no batch in the last two steps, and was never trained on, was left early by a test."""
        for current in [current for current in self._unproven if current.came_in < self._step - 1]:
            self._unproven.remove(current)
            self._mark_evaluation(current, current.came_ns)

    def _mark_evaluation(self, current, end_ns):
        """Under the number of the step that it came after; -1 before the first."""
        marks.interval("evaluate", current.came_in - 1, current.begin_ns, end_ns)


def _asked_ns(current, begin_ns):
    """When the first batch of a pass was asked for: with the pass itself, unless that was made long before."""
    return current.begin_ns if begin_ns - current.made_ns < NEAR_NS else begin_ns


INFERENCE_MARKS = ("fetch", "inference", "compute", "step")


class InferenceSteps(object):
    """Turns events into marks; the file of marks is opened when the first step is over."""

    by_backward = True

    def __init__(self, open_marks, find_gpu=None):
        self.ending = None  # when the script is to be ended, if before its time
        self._open_marks = open_marks  # returns for how many steps there is room, 0 if this process may not mark
        self._find_gpu, self._gpu_looks = find_gpu, GPU_LOOKS if find_gpu else 0
        self.gpu = None
        self.awaits_model = False  # a batch came, and what is called now is nobody's part
        self._write = self._write_epoch = None  # until the marks are open
        self._models = {}  # identity -> a weak reference, of modules known to be models
        self._step = self._epoch = 0
        self._passes = []  # that had steps, with their ends
        self._trains = self._refused = False
        self._cleared_ns = None  # when a model's gradients were last cleared, since the last batch
        self.awaits_forward = True  # no model in training mode was called yet, with gradients on
        self._forward_ns = None  # when the first was
        self._pass = self._fetch = self._called = self._follows_ns = None

    def iterated(self, begin_ns, loader, graded):
        """A pass over a DataLoader begins."""
        self.finish()
        self._follows_ns = None
        return Pass(begin_ns, loader, graded)

    def fetched(self, current, begin_ns, end_ns):
        """A batch of this pass was waited for."""
        if not current.started:
            current.started = True
            begin_ns, self._follows_ns = _asked_ns(current, begin_ns), None
        self._pass, self._fetch, self._called = current, (begin_ns, end_ns), None
        self.awaits_model = not self._trains
        if self.gpu is not None:
            self.gpu.waited(begin_ns, end_ns)
            self.gpu.stamp(end_ns)

    def exhausted(self, current, now_ns):
        """The pass is over."""
        self.finish()
        self._follows_ns = None
        if current.steps and not current.closed:
            current.closed = True
            self._passes.append((current.begin_ns, now_ns))
            self._write_epoch(self._epoch, current.begin_ns, now_ns)
            self._epoch += 1

    def is_model(self, module):
        """Does this module have parameters? A transform of images is a module too."""
        known = self._models.get(id(module))
        if known is not None and known() is module:
            return True
        if next(module.parameters(), None) is None:
            return False
        self._models[id(module)] = weakref.ref(module)
        return True

    def forward_begins(self, module, graded, begin_ns):
        """A module in training mode is called: if it is training, its first step may begin here."""
        if graded and self.is_model(module):
            self.awaits_forward, self._forward_ns = False, begin_ns

    def called(self, begin_ns, end_ns):
        """A model was called."""
        first_ns = begin_ns if self._called is None else self._called[0]
        self._called = (first_ns, end_ns)
        self.awaits_model = True
        if self.gpu is not None:
            self.gpu.stamp(end_ns)

    def cleared(self, which, now_ns):
        """A model's gradients were cleared: what follows may be a forward pass."""
        self._cleared_ns = now_ns

    def put_aside(self, now_ns):
        """A model goes into eval mode: that is what it is here for."""
        return False

    def hand_over(self, steps):
        """A backward pass begins: it is training, and the last batch is the first that was trained on."""
        current, fetch = self._pass, self._fetch
        self.take_back()
        if fetch is not None:
            steps.resume(current, fetch)
        else:
            known_ns = [at_ns for at_ns in (self._cleared_ns, self._forward_ns) if at_ns is not None]
            if known_ns:
                steps.closure_begins(min(known_ns))

    def steps(self):
        """How many steps are over."""
        return self._step if self._write is not None else 0

    def is_over(self):
        """Is the script to be ended?"""
        return self.ending.over

    def finish(self):
        """If a model was called since the last batch, the step is over: mark it. Called before a fetch is timed."""
        self.awaits_model = False
        if self._fetch is None:
            return
        end_ns = marks.now_ns()
        fetch, called, self._fetch = self._fetch, self._called, None
        if called is None or not self._may_write():
            self._follows_ns = None
            return
        begin_ns = fetch[0] if self._follows_ns is None else self._follows_ns
        self._write(self._step, *(fetch + called + (fetch[1], called[1], begin_ns, end_ns)))
        self._mark_on_gpu(called, fetch[1])
        self._step += 1
        self._pass.steps += 1
        if self.ending is not None:
            self.ending.stepped(self._step, begin_ns, end_ns)
        self._pass.came_ns = self._follows_ns = end_ns

    def _may_write(self):
        """Open the marks when the first step is over: a loop that calls no model leaves nothing."""
        if self._write is None and not self._refused:
            room = self._open_marks(2 * len(INFERENCE_MARKS))
            self._refused = room == 0
            if room:
                self._write, self._write_epoch = (
                    marks.group(INFERENCE_MARKS, room),
                    marks.group(("epoch",), room // 64 + 1),
                )
        return self._write is not None

    def _mark_on_gpu(self, called, came_ns):
        if self.gpu is not None:
            self.gpu.stepped(self._step, (("inference", [called]),), called[1], came_ns)
        elif self._gpu_looks:
            self._gpu_looks -= 1
            self.gpu = self._find_gpu()

    def take_back(self):
        """This process trains: unmark the steps, and keep the passes for what they were."""
        self.awaits_model, self._fetch, self._trains = False, None, True
        if self._write is None:
            return
        if self._pass.steps and not self._pass.closed:
            self._passes.append((self._pass.begin_ns, self._pass.came_ns))
        self._write.withdraw()
        self._write_epoch.withdraw()
        self._write, passes, self._passes = None, self._passes, []
        for begin_ns, end_ns in passes:
            marks.interval("evaluate", -1, begin_ns, end_ns)

    def close(self):
        """The program ends."""
        self.finish()
        current = self._pass
        if current is not None and current.steps and self._write is not None:
            self.exhausted(current, current.came_ns)
        if self.gpu is not None:
            self.gpu.close()
