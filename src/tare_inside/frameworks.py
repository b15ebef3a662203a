"""Marks scripts of other frameworks than torch without a change to them: each has calls that can be taken for steps.

scikit-learn: each `fit` or `partial_fit`, the outermost one of those inside each other. ONNX Runtime: each `run` of a
session. Keras: each batch of `Model.fit`, by a callback. JAX: calls of the jitted function that takes most of the time,
each until the next call of a jitted function, for JAX computes while the script goes on, and nothing is synchronised;
a loop that does not wait for its results has no steps (`runs-ahead`). TensorFlow without Keras: calls of `tf.function`,
chosen in the same way; on a GPU nothing tells whether the script waits, and there are none.

Times are kept in memory and written when the process ends, by the first of these that saw two calls or more; where
torch trained or inferred in the same process, or the script marks itself, none of them writes. `attach.json` says
`marked` and `by` which framework, or `watched` with the reason `few-calls`. Only the thread and the process of the
first call count. A script is not ended early by them (see attach.py).
"""

import atexit
import functools
import os
import sys
from _thread import get_ident

from tare_inside import BEGAN_NS, marks

MOST = 1 << 16
FEWEST = 2
RUNS_AHEAD = 10  # one call in so many
NAMES = (
    "keras",
    "jax",
    "tensorflow",  # after JAX, whose scripts prepare their data with it
    "onnxruntime",
    "sklearn",
)  # whose calls count, where several were seen: the outer ones first


class Calls(object):
    """The calls of one framework in this process: when each began and ended, and which function it was."""

    def __init__(self):
        self.spans = []  # (begin, end, function)
        self._pid, self._thread, self._inside = os.getpid(), None, False

    def enter(self):
        """Whether the call that begins now counts; then `leave` must follow."""
        if self._inside or len(self.spans) >= MOST or os.getpid() != self._pid:
            return False
        if self._thread is None:
            self._thread = get_ident()
        self._inside = self._thread == get_ident()
        return self._inside

    def leave(self, begin_ns, function=None):
        self._inside = False
        self.spans.append((begin_ns, marks.now_ns(), function))

    def leave_uncounted(self):
        self._inside = False

    reason = "few-calls"  # why there are no steps

    def steps(self):
        return [(begin_ns, end_ns) for begin_ns, end_ns, _ in self.spans]


class JitCalls(Calls):
    """Calls that may return before the work is done: one lasts until the next begins.

    Where the script does not wait for results, that is only the time of handing work over: then there are no steps.
    """

    reason = "runs-ahead"

    def __init__(self):
        super(JitCalls, self).__init__()
        self._last = None  # a result of the last call
        self._ahead = 0  # calls that began before the result of the last was there

    def look(self):
        """A call begins, and is inside no other: is the result of the last one there?"""
        if self._inside:
            return
        last, self._last = self._last, None
        if last is not None and not last.is_deleted() and not last.is_ready():
            self._ahead += 1

    def returned(self, leaves):
        if not self._inside:
            self._last = next((leaf for leaf in leaves if hasattr(leaf, "is_ready")), None)

    def runs_ahead(self):
        return self._ahead * RUNS_AHEAD > len(self.spans)

    def steps(self):
        if self.runs_ahead():
            return []
        begins = [begin_ns for begin_ns, _, _ in self.spans] + [end_ns for _, end_ns, _ in self.spans[-1:]]
        spans = [(begins[at], begins[at + 1], function) for at, (_, _, function) in enumerate(self.spans)]
        total_ns = {}
        for begin_ns, end_ns, function in spans:
            count, before_ns = total_ns.get(function, (0, 0))
            total_ns[function] = count + 1, before_ns + end_ns - begin_ns
        often = {function: spent for function, (count, spent) in total_ns.items() if count >= FEWEST}
        if not often:
            return []
        longest = max(often, key=often.get)
        return [(begin_ns, end_ns) for begin_ns, end_ns, function in spans if function == longest]


class GraphCalls(JitCalls):
    """Calls of TensorFlow's graphs: on a CPU they return when the work is done."""

    has_gpu = staticmethod(lambda: False)

    def runs_ahead(self):
        return bool(self.spans) and self.has_gpu()


def timed(call, calls, key=None):
    """The same; what it took is noted unless it is inside another call that is."""

    @functools.wraps(call)
    def watched(*arguments, **options):
        if not calls.enter():
            return call(*arguments, **options)
        begin_ns = marks.now_ns()
        try:
            result = call(*arguments, **options)
        except BaseException:
            calls.leave_uncounted()
            raise
        calls.leave(begin_ns, key)
        return result

    return watched


def watch_sklearn(base, calls):
    """Estimators are defined after this module has come, each with a `fit` of its own."""
    estimator = base.BaseEstimator
    own = estimator.__dict__.get("__init_subclass__")

    def defined(cls, **options):
        if own is not None:
            own.__get__(None, cls)(**options)
        else:
            super(estimator, cls).__init_subclass__(**options)
        for name in ("fit", "partial_fit"):
            method = cls.__dict__.get(name)
            if callable(method) and not hasattr(method, "_tare_watches"):
                wrapped = timed(method, calls)
                wrapped._tare_watches = True
                setattr(cls, name, wrapped)

    estimator.__init_subclass__ = classmethod(defined)


def watch_onnxruntime(onnxruntime, calls):
    session = onnxruntime.InferenceSession
    for name in ("run", "run_with_ort_values", "run_with_iobinding"):
        if hasattr(session, name):
            setattr(session, name, timed(getattr(session, name), calls))


def watch_keras(keras, calls):
    fit = keras.Model.fit

    class Batches(keras.callbacks.Callback):
        _begin_ns = None

        def on_train_batch_begin(self, batch, logs=None):
            self._begin_ns = marks.now_ns() if calls.enter() else None

        def on_train_batch_end(self, batch, logs=None):
            if self._begin_ns is not None:
                calls.leave(self._begin_ns)
                self._begin_ns = None

    @functools.wraps(fit)
    def watched(self, *arguments, **options):
        given = options.get("callbacks")
        if len(arguments) > 5 or isinstance(given, keras.callbacks.CallbackList):
            return fit(self, *arguments, **options)  # callbacks by position, or a list that is whole already
        mine = list(given) if isinstance(given, (list, tuple)) else [given] if given is not None else []
        return fit(self, *arguments, **dict(options, callbacks=mine + [Batches()]))

    keras.Model.fit = watched


def watch_jax(jax, calls):
    jit, leaves = jax.jit, jax.tree_util.tree_leaves

    class Jitted(object):
        """A jitted function that notes its calls; everything else of it is the function's own."""

        def __init__(self, function):
            object.__setattr__(self, "_function", function)
            object.__setattr__(self, "_watched", timed(function, calls, id(function)))
            functools.update_wrapper(self, function, updated=())

        def __call__(self, *arguments, **options):
            try:
                calls.look()
            except Exception:
                pass
            result = self._watched(*arguments, **options)
            try:
                calls.returned(leaves(result))
            except Exception:
                pass
            return result

        def __getattr__(self, name):
            return getattr(self._function, name)

        def __get__(self, instance, owner=None):
            return self if instance is None else functools.partial(self, instance)

    @functools.wraps(jit)
    def watched(*arguments, **options):
        made = jit(*arguments, **options)
        return Jitted(made) if arguments or "fun" in options else lambda function: Jitted(made(function))

    jax.jit = watched


def watch_tensorflow(tensorflow, calls):
    kind = type(tensorflow.function(lambda: 0))
    call = kind.__call__

    @functools.wraps(call)
    def watched(self, *arguments, **options):
        if not calls.enter():
            return call(self, *arguments, **options)  # one that is traced into another, for instance
        begin_ns = marks.now_ns()
        try:
            result = call(self, *arguments, **options)
        except BaseException:
            calls.leave_uncounted()
            raise
        calls.leave(begin_ns, id(self))
        return result

    kind.__call__ = watched
    calls.has_gpu = lambda: bool(tensorflow.config.list_physical_devices("GPU"))


WATCHES = {
    "jax": (watch_jax, JitCalls),
    "keras": (watch_keras, Calls),
    "onnxruntime": (watch_onnxruntime, Calls),
    "sklearn.base": (watch_sklearn, Calls),
    "tensorflow": (watch_tensorflow, GraphCalls),
}


class Frameworks(object):
    """All that came into this process; they write once, when it ends."""

    def __init__(self, path):
        self._path, self._born = path, os.getpid()
        self._calls = {}
        self._loaded_ns = 0

    def came(self, name, module):
        """A module of `WATCHES` was imported."""
        watch, kind = WATCHES[name]
        calls = kind()
        watch(module, calls)
        if not self._calls:
            atexit.register(self.end)
        self._calls[name.partition(".")[0]] = calls
        self._loaded_ns = marks.now_ns()

    def end(self):
        if os.getpid() != self._born:
            return
        try:
            self._write()
        except Exception as problem:
            sys.stderr.write("tare: no steps are marked: {!r}\n".format(problem))

    def _write(self):
        from tare_inside import attach

        torch = attach.Watch.latest
        if torch is not None:
            torch.end()
            if torch.has_marked() or torch.gave_up:
                return
        elif marks.room() is not None:  # the script marks itself
            return
        folder = os.path.dirname(self._path)
        jax = self._calls.get("jax")
        ahead = jax is not None and jax.runs_ahead()
        if ahead:
            self._calls.pop("keras", None)  # it computes by JAX, and its batches are over before they are done
        found = [(name, self._calls[name].steps()) for name in NAMES if name in self._calls]
        name, steps = next(((name, steps) for name, steps in found if len(steps) >= FEWEST), (None, []))
        report = attach.Watch(self._path) if torch is None else torch
        if name is None:
            if found and not os.path.exists(self._path):
                first = self._calls[found[0][0]]
                reason = first.reason if len(first.spans) >= FEWEST else "few-calls"
                report.say("watched", reason=reason, framework=found[0][0])
            return
        if marks.room() is None:
            try:
                marks.open_marks(self._path, 2 * len(steps) + 64)
            except FileExistsError:  # another process of this script marks
                return
        for number, (begin_ns, end_ns) in enumerate(steps[: (marks.room() - 8) // 2]):
            marks.interval("step", number, begin_ns, end_ns)
        marks.interval("imports", -1, BEGAN_NS, self._loaded_ns)
        marks.point("exit")
        report.say("marked", by=name)
        attach._write_fingerprint(folder)
