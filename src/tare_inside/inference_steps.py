"""From what can be seen of someone's inference loop (fetches, calls of a model) to marks per step.

Only while no optimiser was made: a process that makes one trains, and what was marked here is taken back (its passes
over the data stay, as `evaluate`). A step is one batch: from where the step before it ended, or from its fetch, to the
next fetch. In it, `inference` is from the first call of a model to the end of the last, `compute` from the arrival of
the batch to the same end. A batch that no call of a model follows is in no step. A call counts when it is nobody's
part, the module has parameters, and gradients are off or the module is in eval mode.
"""

import weakref

from tare_inside import marks
from tare_inside.steps import GPU_LOOKS, Pass

USUAL = ("fetch", "inference", "compute", "step")


class InferenceSteps(object):
    """Turns events into marks; the file of marks is opened when the first step is over."""

    def __init__(self, open_marks, find_gpu=None):
        self._open_marks = open_marks  # returns for how many steps there is room, 0 if this process may not mark
        self._find_gpu, self._gpu_looks = find_gpu, GPU_LOOKS if find_gpu else 0
        self.gpu = None
        self.awaits_model = False  # a batch came, and what is called now is nobody's part
        self._write = self._write_epoch = None  # until the marks are open
        self._models = {}  # identity -> a weak reference, of modules known to be models
        self._step = self._epoch = 0
        self._passes = []  # that had steps, with their ends
        self._trains = self._refused = False
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
            begin_ns, self._follows_ns = current.begin_ns, None
        self._pass, self._fetch, self._called = current, (begin_ns, end_ns), None
        self.awaits_model = not self._trains
        if self.gpu is not None:
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

    def called(self, begin_ns, end_ns):
        """A model was called."""
        first_ns = begin_ns if self._called is None else self._called[0]
        self._called = (first_ns, end_ns)
        self.awaits_model = True
        if self.gpu is not None:
            self.gpu.stamp(end_ns)

    def went_backward(self, begin_ns, end_ns):
        """So it is training, without an optimiser that we know: nothing of it can be told in steps."""
        self.take_back()

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
        self._mark_on_gpu(called)
        self._step += 1
        self._pass.steps += 1
        self._pass.came_ns = self._follows_ns = end_ns

    def _may_write(self):
        """Open the marks when the first step is over: a loop that calls no model leaves nothing."""
        if self._write is None and not self._refused:
            room = self._open_marks(2 * len(USUAL))
            self._refused = room == 0
            if room:
                self._write, self._write_epoch = marks.group(USUAL, room), marks.group(("epoch",), room // 64 + 1)
        return self._write is not None

    def _mark_on_gpu(self, called):
        if self.gpu is not None:
            self.gpu.stepped(self._step, (("inference", [called]),), called[1])
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
