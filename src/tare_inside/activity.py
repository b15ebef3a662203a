"""What really ran on the GPU in a few steps: kernels and copies as CUPTI saw them, through torch's own profiler.

The window is declared: the interval `gpu_window` among the marks. No step that touches it is used for a time, since
the profiler costs some microseconds at each launch. It opens once, some steps after the first, and closes for good.
What is told here is of the steps in the window; tare/figures/steps.py takes off what these are longer than others by.

In it, from the first work of its third step to the first work of its last (the profiler's start drains the GPU, and
the last step has no next one):

    busy        the union of the intervals of all kernels, copies and memory settings on the GPU
    between     the GPU had been given the next work and had not begun it: the start of a kernel, dependencies
    idle        the GPU had no work. Each gap is named by what the work after it had waited for:
      data        the host waited for a mini-batch
      sync        the host gave the work late, after a call that waits for the GPU (`.item()`, `synchronize()`)
      launch      the host gave the work late: the GPU waits for Python

`TARE_GPU_WINDOW=0` turns it off. A script that profiles itself is left alone: its profiler ends our window.

CUPTI is detached afterwards (TEARDOWN_CUPTI, see kineto): else every launch of the rest of the run costs more, 17 to
22 % of a LeNet step on an H200. Before CUDA 12.6 that could crash a program with CUDA graphs, so there the window is
only opened with `TARE_GPU_WINDOW=1`, and CUPTI stays.
"""

import os
import time
import warnings

from tare_inside import marks
from tare_inside.launch import write_whole

VARIABLE = "TARE_GPU_WINDOW"
FILE = "gpu.json"  # beside the marks
SETTLING = 2  # steps of it that are not looked at
FIRST = 6  # steps before the window: compilation, the tuning of kernels, the first batches of a loader's workers
LEAST_STEPS, LEAST_S = 8, 0.2
LONG_STEPS, LONG_S = 2, 1.0  # of steps so long, so few are enough
MOST_STEPS = 32
DETACH = "TEARDOWN_CUPTI"  # kineto reads it when a profile ends, and when the next one begins
DETACHABLE = (12, 6)  # of CUDA
DETACHING_S = 0.02  # kineto's thread asks for it, and the next calls of CUDA do it

_WAITING_CALLS = ("Synchronize", "cudaMemcpy ", "cudaFree ", "cudaMemset ")
_LAUNCHES = ("Launch", "Memcpy", "Memset")


def of_script(torch, folder):
    """The window of a script, or None where it is turned off or this torch has no profiler of CUDA's activity."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "0" or not hasattr(torch, "profiler"):
        return None
    problem = None
    if not can_detach(torch.version) and wanted != "1":
        problem = "CUPTI cannot be detached before CUDA 12.6, and would slow the run; {}=1 accepts that".format(
            VARIABLE
        )
    return Window(Profiler(torch), folder, torch.cuda, problem=problem)


def can_detach(version):
    """Does CUPTI leave the process again, without harm to CUDA graphs? AMD's GPUs have none that could stay."""
    found = getattr(version, "cuda", None)
    return found is None or tuple(int(part) for part in found.split(".")[:2]) >= DETACHABLE


class Profiler(object):
    """As much of torch.profiler as is needed.

    `read` gives [(name, on the GPU?, begin_ns, end_ns, correlation, device)] of what `stop` returned, in wall time.
    """

    def __init__(self, torch):
        self._torch = torch
        self._running = None
        self._unhook = None

    def is_in_use(self):
        return bool(self._torch.autograd._profiler_enabled())

    def start(self, on_conflict):
        """Begin; `on_conflict` is called before another profiler of this process begins."""
        from torch.profiler import ProfilerActivity, profile

        if can_detach(self._torch.version):
            os.environ.setdefault(DETACH, "1")  # it stays: a later profile of the script attaches CUPTI again by it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of cycles, of which there is one
            self._running = profile(activities=[ProfilerActivity.CUDA])
            self._running.start()
        self._unhook = self._hook(on_conflict)

    def _hook(self, on_conflict):
        from torch.autograd import profiler

        prepare = profiler._prepare_profiler

        def prepared(*arguments, **options):
            on_conflict()
            return prepare(*arguments, **options)

        def unhook():
            if profiler._prepare_profiler is prepared:
                profiler._prepare_profiler = prepare

        profiler._prepare_profiler = prepared
        return unhook

    def stop(self):
        self._unhook()
        running, self._running = self._running, None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            running.stop()
        results = running.profiler.kineto_results
        if os.environ.get(DETACH) == "1":
            self._detach()
        return results

    def _detach(self):
        """Give CUPTI the calls in which it leaves, here and not in a step of the script."""
        end_s = time.time() + DETACHING_S
        while time.time() < end_s:
            self._torch.cuda.synchronize()
            time.sleep(0.001)

    @staticmethod
    def read(results):
        rows = []
        for event in results.events():
            if hasattr(event, "start_ns"):
                begin_ns, lasted_ns = event.start_ns(), event.duration_ns()
            else:  # before torch 2.4
                begin_ns, lasted_ns = event.start_us() * 1000, event.duration_us() * 1000
            kind = event.activity_type() if hasattr(event, "activity_type") else ""
            on_gpu = not str(event.device_type()).endswith("CPU") and not str(kind).endswith("annotation")
            correlation, device = event.correlation_id(), event.device_index()
            rows.append((event.name(), on_gpu, begin_ns, begin_ns + lasted_ns, correlation, device))
        return rows


class Window(object):
    """Opens after FIRST steps, closes some steps later; what it saw is looked at when the program ends."""

    def __init__(self, profiler, folder, cuda, wall_ns=None, problem=None):
        self._profiler, self._folder, self._cuda = profiler, folder, cuda
        self._wall_ns = wall_ns or (lambda: int(time.time() * 1e9))
        self._to_come = FIRST if problem is None else 0
        self._began_ns = None  # while it is open
        self._offset_ns = 0  # from the wall clock to that of the marks
        self._edges_ns, self._waits_ns = [], []
        self._results = None
        self._problem = problem  # why there is none
        self.spent_ns, self.cpu_s = [], 0.0  # on opening and closing it: [(begin, end)], and CPU time

    @property
    def is_over(self):
        """It was open, or will never be."""
        return not self._to_come and self._began_ns is None

    def waited(self, begin_ns, end_ns):
        """The host waited for a mini-batch."""
        if self._began_ns is not None:
            self._waits_ns.append((begin_ns, end_ns))

    def fetched_and_stepped(self, step, begin_ns, end_ns):
        """A step is over on the host, which waited for its mini-batch from `begin_ns` to `end_ns`."""
        self.waited(begin_ns, end_ns)
        self.stepped(step)

    def stepped(self, step):
        """A step is over on the host."""
        if self._to_come:
            self._to_come -= 1
            if not self._to_come:
                self._spending(self._open)
        elif self._began_ns is not None:
            now_ns = marks.now_ns()
            self._edges_ns.append(now_ns)
            steps, seconds = len(self._edges_ns) - SETTLING - 2, (now_ns - self._began_ns) / 1e9
            long_enough = steps >= LONG_STEPS and seconds >= LONG_S or steps >= LEAST_STEPS and seconds >= LEAST_S
            if long_enough or steps >= MOST_STEPS:
                self._spending(self._shut)

    def spent_until_s(self, end_ns):
        """What opening and closing it took before that moment."""
        return sum(last - first for first, last in self.spent_ns if last <= end_ns) / 1e9

    def _spending(self, work):
        begin_ns, begin_s = marks.now_ns(), time.process_time()
        work(begin_ns)
        self.cpu_s += time.process_time() - begin_s
        self.spent_ns.append((begin_ns, marks.now_ns()))

    def _open(self, begin_ns):
        try:
            if self._profiler.is_in_use():
                self._problem = "the script runs a profiler of its own"
                return
            self._profiler.start(self._yield)
        except Exception as problem:
            self._problem = "torch's profiler did not start: {!r}".format(problem)[:300]
            return
        self._began_ns = begin_ns

    def _yield(self):
        """The script begins to profile itself: there is one profiler for both."""
        if self._began_ns is not None:
            self._spending(self._shut)
            self._results, self._problem = None, "the script began to run a profiler of its own"

    def _shut(self, _):
        begin_ns, self._began_ns = self._began_ns, None
        try:
            self._cuda.synchronize()  # so that all work that was given is among what is read
            self._results = self._profiler.stop()
        except Exception as problem:
            self._problem = "torch's profiler did not stop: {!r}".format(problem)[:300]
        before_ns, wall_ns = marks.now_ns(), self._wall_ns()
        self._offset_ns = (before_ns + marks.now_ns()) // 2 - wall_ns
        marks.interval("gpu_window", -1, begin_ns, marks.now_ns())

    def close(self):
        """The program ends: look at what was seen, and leave it beside the marks."""
        if self._began_ns is not None:
            self._spending(self._shut)
        if self._results is not None:
            try:
                found = self._told()
            except Exception as problem:
                found = {"problem": "what the profiler reported could not be read: {!r}".format(problem)[:300]}
        else:
            few = "the run ended before its window of steps, which begins after step {}".format(FIRST)
            found = {"problem": self._problem or few}
        try:
            write_whole(os.path.join(self._folder, FILE), found)
        except OSError:
            pass  # where there is no place for it, the marks are kept anyway

    def _told(self):
        events = [
            (name, on_gpu, begin_ns + self._offset_ns, end_ns + self._offset_ns, correlation, device)
            for name, on_gpu, begin_ns, end_ns, correlation, device in self._profiler.read(self._results)
        ]
        return analysed(events, self._edges_ns, self._waits_ns)


def analysed(events, edges_ns, waits_ns):
    """What ran in the window, as plain data; `edges_ns` are the ends of its steps on the host, the first one first."""
    edges_ns = edges_ns[SETTLING:-1]
    work = sorted((event for event in events if event[1] and _is_work(event[0])), key=_begin)
    calls = sorted((event for event in events if not event[1]), key=_begin)
    if len(edges_ns) < 2:
        return {"problem": "the run ended in its window of steps"}
    if not work:
        return {"problem": "the profiler reported no work of the GPU: CUPTI may be in use by another program"}
    used_ns = {}
    for event in work:
        used_ns[event[5]] = used_ns.get(event[5], 0) + event[3] - event[2]
    device = max(used_ns, key=used_ns.get)
    work = [event for event in work if event[5] == device]
    given_ns = {event[4]: event[2] for event in calls if any(word in event[0] for word in _LAUNCHES)}
    begin_ns = _first_given_after(edges_ns[0], work, given_ns)
    end_ns = _first_given_after(edges_ns[-1], work, given_ns) or max(event[3] for event in work)
    if begin_ns is None or end_ns <= begin_ns:
        return {"problem": "no work of the GPU lies in the window"}
    inside = [event for event in work if begin_ns <= event[2] < end_ns]
    within = [event for event in calls if edges_ns[0] <= event[2] < edges_ns[-1]]
    steps, window_ns = len(edges_ns) - 1, end_ns - begin_ns
    busy, gaps = _busy_and_gaps(inside, begin_ns, end_ns)
    if gaps and gaps[-1][2] is None:
        gaps[-1] = gaps[-1][:2] + (next((event for event in work if event[2] >= end_ns), None),)
    shares = dict.fromkeys(("between", "data", "sync", "launch"), 0.0)
    synced = [event for event in calls if _waits(event[0])]
    for gap in gaps:
        for name, lasted_ns in _why(gap, given_ns, synced, waits_ns):
            shares[name] += lasted_ns / window_ns
    copies = [event for event in inside if event[0].startswith("Memcpy") and "DtoD" not in event[0]]
    return {
        "steps": steps,
        "window_s": window_ns / 1e9,
        "step_s": window_ns / 1e9 / steps,  # longer than other steps where the host is what limits them
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "device": device,
        "busy_share": busy / window_ns,
        "between_share": shares.pop("between"),
        "idle_share": sum(shares.values()),
        "idle_for": shares,
        "copy_s": _busy_and_gaps(copies, 0, float("inf"))[0] / 1e9 / steps,
        "kernels": sum(not event[0].startswith(("Memcpy", "Memset")) for event in inside) / float(steps),
        "launches": sum("Launch" in event[0] for event in within) / float(steps),
        "copies": _counted((event[0] for event in copies), steps),
        "pageable_copies": sum("Pageable" in event[0] for event in copies) / float(steps),
        "synchronising": _counted((event[0] for event in within if _waits(event[0])), steps),
    }


def _begin(event):
    return event[2]


def _is_work(name):
    """Kernels, copies and memory settings; not the profiler's own annotations, nor its waits.

    An annotation is `Optimizer.step#SGD.step`; in the name of a kernel a `#` numbers a lambda: `...::{lambda()#1}...`.
    """
    before, number, _ = name.partition("#")
    return (not number or "(" in before or "{" in before) and not name.endswith(" Sync")


def _waits(name):
    return any(word in name + " " for word in _WAITING_CALLS) and "Async" not in name


def _first_given_after(edge_ns, work, given_ns):
    """When the GPU began the first work that the host gave after this moment; None where there is none."""
    return min((event[2] for event in work if given_ns.get(event[4], event[2]) >= edge_ns), default=None)


def _busy_and_gaps(work, begin_ns, end_ns):
    """How long some work ran, and the gaps: [(begin, end, the work that ended it)]; `work` is in order of time."""
    busy, gaps, at_ns = 0, [], begin_ns
    for event in work:
        if event[2] > at_ns:
            gaps.append((at_ns, event[2], event))
            at_ns = event[2]
        reached_ns = min(event[3], end_ns)
        if reached_ns > at_ns:
            busy += reached_ns - at_ns
            at_ns = reached_ns
    if at_ns < end_ns:
        gaps.append((at_ns, end_ns, None))
    return busy, gaps


def _why(gap, given_ns, synced, waits_ns):
    """(what the GPU waited for, for how long) in a gap."""
    begin_ns, end_ns, event = gap
    given = given_ns.get(event[4]) if event is not None else end_ns
    if given is None or given <= begin_ns:
        return [("between", end_ns - begin_ns)]
    waited = sum(max(0, min(last, end_ns) - max(first, begin_ns)) for first, last in waits_ns)
    rest = end_ns - begin_ns - waited
    after_wait = any(begin_ns <= call[3] <= given and call[2] <= begin_ns for call in synced)
    return [("data", waited), ("sync" if after_wait else "launch", rest)]


def _counted(names, steps):
    found = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return {name: count / float(steps) for name, count in sorted(found.items())}
