"""Marks a user's own PyTorch script without a change to it (see steps.py for what is marked).

The first process that makes an optimiser, or goes backward without one, marks its training, in the thread that did so;
a process that does neither, and calls a model on batches of a DataLoader, marks its inference. Of distributed processes
only the first rank marks. What torch_hooks.py sees comes to a `Watch`, which decides so.

Whatever goes wrong here is said once on stderr and in `attach.json` beside the marks, and the script runs on unmarked.
What that file says in `state`: `started` (Python runs, torch has not come), `watched` (torch came, and nothing was
marked; `reason` says why, once the process has ended), `marked` (and `by` what the steps were told), or `gave up` and
`why`. `stopped` is there if the script was ended before its time (below is how that is asked for).

A script can be ended before its time, as the study says (`steps`, `minutes`), and as cleanly as its own end.

The variable TARE_ATTACH holds a JSON object; either key may be absent, and without the variable no script is ended:

    {"stop_after_steps": 200, "stop_after_s": 180.0}

`stop_after_steps`: when so many steps are over, as attach.py marks them (the first ones count too). `stop_after_s`:
with the first step that ends so many seconds after the first one began. At the script's next call for a batch, a
backward pass or an optimiser's step SystemExit(0) is raised in it: its `finally` blocks and exit handlers run. A script
that catches that and trains on, or that trains in another thread than the main one, has its exit handlers run and is
ended.

Each process that trains is ended. Processes that train together end with the same step: they count alike, and if a time
is to end them, the first rank leaves the number of the last step in a file beside the marks, some steps ahead.
"""

import atexit
import json
import os
import sys
from _thread import get_ident

from tare_inside import BEGAN_NS, marks, torch_hooks, turns
from tare_inside.steps import INFERENCE_MARKS as INFERENCE
from tare_inside.steps import TRAINING_MARKS as TRAINING
from tare_inside.steps import InferenceSteps, Steps

SETTINGS = "TARE_ATTACH"
AHEAD = 8  # steps: no rank is so far before the first one, for they wait for each other in every step


def ending_from_environment(folder):
    """What the variable asks for, None where it asks for nothing; ValueError where it cannot be understood."""
    text = os.environ.get(SETTINGS)
    if not text:
        return None
    settings = json.loads(text)
    steps, seconds = settings.get("stop_after_steps"), settings.get("stop_after_s")
    for value in (steps, seconds):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
            raise ValueError("{}: not a number above 0: {!r}".format(SETTINGS, value))
    return None if steps is None and seconds is None else Ending(folder, steps, seconds)


class Ending(object):
    """Knows when a script is to be ended."""

    def __init__(self, folder, steps=None, seconds=None):
        self._steps, self._seconds = steps, seconds
        self._agreed_at = os.path.join(folder, "last-step")
        self._together = None  # do several processes train together, and is this the first of them?
        self._began_ns = None
        self.over = False
        self.turns = None  # where the process waits for its turn, which is not its own time
        self.reported = None  # what is to be recorded of it

    def stepped(self, count, begin_ns, end_ns):
        """So many steps are over; the last was from `begin_ns` to `end_ns`."""
        waited_ns = 0 if self.turns is None else self.turns.waited_ns
        if self._began_ns is None or count == 1:
            self._began_ns = begin_ns
        passed_s = (end_ns - self._began_ns - waited_ns) / 1e9
        if self._steps is not None and count >= self._steps:
            by = "steps"
        elif self._seconds is not None and self._is_late(count, passed_s):
            by = "seconds"
        else:
            return
        self.over, self.reported = True, {"by": by, "steps": count, "after_s": passed_s}

    def _is_late(self, count, passed_s):
        if self._together is None:
            self._together = _together()
        several, first = self._together
        if not several:
            return passed_s >= self._seconds
        try:
            with open(self._agreed_at) as file:
                return count >= int(file.read())
        except (OSError, ValueError):
            if first and passed_s >= self._seconds:
                with open(self._agreed_at + ".half", "w") as file:
                    file.write(str(count + AHEAD))
                os.rename(self._agreed_at + ".half", self._agreed_at)
            return False


def _together():
    """(are there several, is this the first of them)"""
    distributed = _distributed(sys.modules.get("torch"))
    if distributed is None:
        return False, True
    return distributed.get_world_size() > 1, distributed.get_rank() == 0


def leave():
    """End the script from where it stands."""
    import threading

    if threading.current_thread() is not threading.main_thread():
        leave_at_once()  # SystemExit would end this thread alone
    raise SystemExit(0)


def leave_at_once():
    """What Python does at its end, here and now."""
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # closed, or nobody listens
    os._exit(0)


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
        self.turns = None  # in which this process does its steps, if it marks them
        self._looking = InferenceSteps(self._open, self._find_gpu)
        self.stop_looking = lambda: None  # leave the calls of modules alone again
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
            leave_at_once()
        self.saw_thread = self.saw_thread or not self.trains

    def take_turns(self, steps, *, after_optimiser=False):
        """Wait here if the turn is over. The script's own marks of steps end turns in place of these.

        Steps that backward passes tell may be taken back, and end no turn.
        """
        try:
            if self.turns.by_marks:
                return
            if self._pid == os.getpid() and (not steps.by_backward or steps is self._looking):
                if after_optimiser:
                    steps.finish_usual()
                self.turns.stepped(steps.steps())
        except Exception as problem:
            self.give_up(problem)

    def stop(self):
        """The script is to be ended: here."""
        if self.steps is None:
            return
        self._stopped = True
        if self._pid == os.getpid():
            sys.stderr.write("tare: ended after {} steps, as requested.\n".format(self.ending.reported["steps"]))
        self._close()
        self.steps = None  # also where another process marks
        leave()

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
            buffer = marks.opened()
            if buffer.turns is None:  # two ends in one process would wait for one grant
                buffer.turns = turns.joined(os.path.dirname(self._path))
            self.turns = buffer.turns
            if self.ending is not None:
                self.ending.turns = self.turns
        if self._pid != os.getpid():
            return 0
        # Less than planned if the script has opened them, for marks of its own, before it imported torch.
        return max(1, min(ROOM_STEPS, (marks.room() - ROOM_OTHER // 2) // marks_a_step))

    def _most_a_step(self):
        return 2 * (len(TRAINING) + len(INFERENCE)) + (GPU_MARKS_A_STEP if torch_hooks.knows_gpus(self._torch) else 0)

    def _find_gpu(self):
        """A timeline of the GPU's own, if the script uses one."""
        if not torch_hooks.knows_gpus(self._torch):
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
        try:
            with open(os.path.join(os.path.dirname(self._path), "attach.json")) as file:
                return json.load(file).get("reason") or "no-backward"
        except Exception:
            return "no-backward"


def attach(torch, path):
    """Watch this torch, and mark into a file at `path`."""
    watch = Watch.latest = Watch(path, torch)
    try:
        if not os.path.exists(path):
            watch.say("watched")
        atexit.register(watch.end)
        watch.ending = watch.steps.ending = ending_from_environment(os.path.dirname(path))
        torch_hooks.watch_torch(torch, watch)
    except Exception as problem:
        watch.give_up(problem)
    return watch


def _is_first_rank(torch):
    """Is this the only process, or the first of those that train together?"""
    distributed = _distributed(torch)
    return os.environ.get("RANK", "0") == "0" if distributed is None else distributed.get_rank() == 0


def _distributed(torch):
    """torch.distributed, where processes train together."""
    distributed = getattr(torch, "distributed", None)
    together = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if together else None


def _write_fingerprint(folder):
    """Say what software this very process ran: another interpreter may have another torch."""
    from tare_inside import fingerprint
    from tare_inside.launch import write_whole

    write_whole(os.path.join(folder, "fingerprint.json"), fingerprint.gather())
