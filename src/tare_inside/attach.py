"""Marks a user's own PyTorch script without a change to it (see steps.py and inference_steps.py for what is marked).

The first process that makes an optimiser marks its training, in the thread that did so; a process that makes none, and
calls a model on batches of a DataLoader, marks its inference. Of distributed processes only the first rank marks.

Whatever goes wrong here is said once on stderr and in `attach.json` beside the marks, and the script runs on unmarked.
What that file says: `watched` (torch came, and nothing to mark so far), `marked`, or `gave up` and why.
"""

import atexit
import os
import sys
from _thread import get_ident

from tare_inside import marks
from tare_inside.attach_hooks import watch_backward, watch_loaders, watch_models, watch_optimisers
from tare_inside.inference_steps import USUAL as INFERENCE
from tare_inside.inference_steps import InferenceSteps
from tare_inside.steps import USUAL as TRAINING
from tare_inside.steps import Steps

ROOM_STEPS = 1 << 15
GPU_MARKS_A_STEP = 2 * 5
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
        from tare_inside import gpu_events

        return gpu_events.timeline(self._torch.cuda)

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
        said = {"state": state, "pid": os.getpid()}
        if problem is not None:
            said["why"] = repr(problem)[:500]
        try:
            from tare_inside.launch import write_whole

            write_whole(os.path.join(os.path.dirname(self._path), "attach.json"), said)
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
