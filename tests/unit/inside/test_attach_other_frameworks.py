"""JAX, Keras, TensorFlow, ONNX Runtime and scikit-learn: stand-ins with the same calls, in plain scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tare_inside import marks

SOURCE = Path(marks.__file__).parents[1]
STAND_INS = {
    "sklearn/__init__.py": "",
    "sklearn/base.py": """
class Mixin:
    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls.mixed = True
class BaseEstimator:
    pass
""",
    "sklearn/linear_model.py": """
from sklearn.base import BaseEstimator, Mixin
class Ridge(Mixin, BaseEstimator):
    def fit(self, X, y=None):
        self.coef_ = sum(X)
        return self
class Search(BaseEstimator):
    def fit(self, X):
        for _ in range(3):
            Ridge().fit(X)
        return self
""",
    "onnxruntime/__init__.py": """
class Session:
    def run(self, names, feed):
        return [len(feed)]
class InferenceSession(Session):
    pass
""",
    "keras/__init__.py": """
from types import SimpleNamespace
class Callback:
    def on_train_batch_begin(self, batch, logs=None): pass
    def on_train_batch_end(self, batch, logs=None): pass
class CallbackList: pass
callbacks = SimpleNamespace(Callback=Callback, CallbackList=CallbackList)
class Trainer:
    def fit(self, x=None, y=None, batch_size=None, epochs=1, verbose="auto", callbacks=None):
        for batch in range(4 * epochs):
            for each in callbacks or (): each.on_train_batch_begin(batch)
            for each in callbacks or (): each.on_train_batch_end(batch, {})
        return len(callbacks or ())
class Model(Trainer): pass
""",
    "tensorflow/__init__.py": """
from types import SimpleNamespace
GPUS = []
config = SimpleNamespace(list_physical_devices=lambda kind: GPUS)
class Function:
    def __init__(self, fun): self.fun = fun
    def __call__(self, *a, **k): return self.fun(*a, **k)
    def __get__(self, instance, owner=None): return Function(lambda *a: self.fun(instance, *a))
    def get_concrete_function(self): return self
def function(fun): return Function(fun)
""",
    "jax/__init__.py": """
class Compiled:
    def __init__(self, fun): self.fun, self.__name__ = fun, fun.__name__
    def __call__(self, *a, **k): return self.fun(*a, **k)
    def lower(self): return "lowered " + self.__name__
class tree_util:
    tree_leaves = staticmethod(lambda tree: [tree])
class Array:
    def __init__(self, ready): self.ready = ready
    def is_ready(self): return self.ready
    def is_deleted(self): return False
def jit(fun=None, **options):
    return Compiled(fun) if fun is not None else (lambda f: Compiled(f))
""",
}


@pytest.fixture
def run(tmp_path: Path):
    for name, text in STAND_INS.items():
        (tmp_path / "lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / name).write_text(text)

    def run_script(text: str) -> tuple[str, dict[str, object], list[float]]:
        (tmp_path / "script.py").write_text(text)
        folders = [SOURCE / "tare_inside" / "inside_site", SOURCE, tmp_path / "lib"]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "TARE_MARKS": str(tmp_path / "marks.bin"),
        }
        done = subprocess.run(
            [sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        reported = json.loads((tmp_path / "attach.json").read_text())
        if not (tmp_path / "marks.bin").exists():
            return done.stdout, reported, []
        found, _ = marks.load(str(tmp_path / "marks.bin"))
        edges = [(t_ns, edge) for t_ns, name, edge, _ in found if name == "step"]
        begins, ends = ([t_ns for t_ns, each in edges if each == edge] for edge in ("begin", "end"))
        return done.stdout, reported, [(end - begin) / 1e9 for begin, end in zip(begins, ends, strict=True)]

    return run_script


def test_each_fit_of_scikit_learn_is_a_step_and_one_inside_another_is_none(run):
    out, reported, steps = run("""
from sklearn.linear_model import Ridge, Search
for _ in range(5): Ridge().fit([1, 2])
print(Ridge().fit([1, 2]).coef_, Ridge.mixed, Ridge.fit.__name__)
Search().fit([1])
""")

    assert out == "3 True fit\n"
    assert (reported["state"], reported["by"], len(steps)) == ("marked", "sklearn", 7)


def test_a_single_fit_is_timed_whole_with_the_reason(run):
    _, reported, steps = run("from sklearn.linear_model import Ridge; Ridge().fit([1])")

    assert (reported["state"], reported["reason"], steps) == ("watched", "few-calls", [])


def test_each_run_of_a_session_of_onnx_runtime_is_a_step(run):
    out, reported, steps = run("""
import time, onnxruntime
session = onnxruntime.InferenceSession()
for _ in range(3): print(session.run(None, {"x": 1})[0])
""")

    assert out == "1\n1\n1\n"
    assert (reported["by"], len(steps)) == ("onnxruntime", 3)


def test_each_batch_of_keras_is_a_step_and_the_scripts_own_callbacks_stay(run):
    out, reported, steps = run("""
import keras
class Mine(keras.callbacks.Callback):
    seen = 0
    def on_train_batch_end(self, batch, logs=None): self.seen += 1
mine = Mine()
class Net(keras.Model): pass
print(Net().fit(epochs=2, callbacks=[mine]), mine.seen)
""")

    assert out == "2 8\n"
    assert (reported["by"], len(steps)) == ("keras", 8)


def test_steps_of_jax_are_calls_of_the_jitted_function_that_takes_most_of_the_time(run):
    out, reported, steps = run("""
import time, jax
from functools import partial
@jax.jit
def step(x):
    return inner(x)
@partial(jax.jit, static_argnums=0)
def inner(x):
    return x + 1
@jax.jit
def look(x):
    return x
class Holder:
    @jax.jit
    def method(self, x): return x * 2
x = 0
for _ in range(6):
    x = step(x)
    time.sleep(0.02)  # where a script waits for the result
    look(x)
print(x, step.lower(), step.__name__, Holder().method(3))
""")

    assert out == "6 lowered step step 6\n"
    assert (reported["by"], len(steps)) == ("jax", 6)
    assert all(0.02 <= each < 5 for each in steps)


@pytest.mark.parametrize(("ready", "count", "reason"), [(True, 20, None), (False, 0, "runs-ahead")])
def test_a_loop_of_jax_that_does_not_wait_for_its_results_has_no_steps(run, ready, count, reason):
    _, reported, steps = run(f"""
import jax
def compute(): return jax.Array({ready})
step = jax.jit(compute)
for _ in range(20): step()
""")

    assert (len(steps), reported.get("reason")) == (count, reason)


TENSORFLOW = """
import time, tensorflow as tf
tf.GPUS += [{gpus}]
@tf.function
def inner(x): return x + 1
@tf.function
def step(x): return inner(x)
@tf.function
def look(x): return x
x = 0
for _ in range(6):
    x = step(x)
    time.sleep(0.02)
    look(x)
print(x, step.get_concrete_function() is step, isinstance(step, tf.Function))
"""


def test_steps_of_tensorflow_are_calls_of_the_graph_that_takes_most_of_the_time(run):
    out, reported, steps = run(TENSORFLOW.format(gpus=""))

    assert out == "6 True True\n"
    assert (reported["by"], len(steps)) == ("tensorflow", 6)
    assert all(0.02 <= each < 5 for each in steps)


def test_on_a_gpu_calls_of_tensorflow_are_no_steps(run):
    _, reported, steps = run(TENSORFLOW.format(gpus="'GPU:0'"))

    assert (reported["state"], reported["reason"], steps) == ("watched", "runs-ahead", [])


def test_a_script_that_marks_itself_is_left_to_do_so(run):
    _, reported, steps = run("""
from tare_inside import marks
from sklearn.linear_model import Ridge
for number in range(3):
    with marks.during("step", number): Ridge().fit([1])
""")

    assert (reported["state"], len(steps)) == ("started", 3)
