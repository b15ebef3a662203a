"""Python imports this by itself at its start when this folder is on PYTHONPATH: it waits until torch is imported, or
another framework whose steps can be recognised (frameworks.py).

Then it runs the sitecustomize that would have run without us, if there is one. A script that imports none of them is
left alone; `attach.json` beside the marks says that a Python was here.
"""

import os
import sys

_FRAMEWORKS = ("jax", "keras", "onnxruntime", "sklearn.base", "tensorflow")
_others = []  # what watches them, once the first has come


def _attach(name, module):
    if name == "torch":
        _attach_torch(module)
        return
    try:
        if not _others:
            from tare_inside import frameworks

            _others.append(frameworks.Frameworks(os.environ["TARE_MARKS"]))
        _others[0].came(name, module)
    except Exception as problem:
        sys.stderr.write("tare: {} runs unmarked: {!r}\n".format(name, problem))


def _attach_torch(torch):
    try:
        from tare_inside import attach

        attach.attach(torch, os.environ["TARE_MARKS"])
    except Exception as problem:
        sys.stderr.write("tare: the script runs unmarked: {!r}\n".format(problem))
        import json

        _leave_word("w", json.dumps({"state": "gave up", "pid": os.getpid(), "why": repr(problem)[:500]}))


def _leave_word(mode, text):
    """For the record; where there is no place for it, or word was left already, on we go."""
    try:
        with open(os.path.join(os.path.dirname(os.environ["TARE_MARKS"]), "attach.json"), mode) as file:
            file.write(text)
    except Exception:
        pass


class _WhenTheyCome(object):
    """Finds a module as the others would, and has its loader call us once it is loaded."""

    def __init__(self, names):
        self._names = set(names)
        self._looking = set()

    def find_spec(self, name, path=None, target=None):
        if name not in self._names or name in self._looking:
            return None
        import importlib.util

        self._looking.add(name)  # the others are asked now, and we among them
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.discard(name)
        # Someone may only have asked whether there is such a module: stay, until one is really loaded.
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._follow(name, spec.loader)
        return spec

    def _follow(self, name, loader):
        load = loader.exec_module

        def exec_module(module):
            load(module)
            del loader.exec_module  # leave the loader as it was
            self._names.discard(name)
            if not self._names and self in sys.meta_path:
                sys.meta_path.remove(self)
            _attach(name, module)

        loader.exec_module = exec_module


def _run_the_next_one():
    """The sitecustomize that this one hides: the first on sys.path that is not ours."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    rest = [folder for folder in sys.path if os.path.abspath(folder) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("TARE_MARKS"):
    try:
        import tare_inside  # noqa: F401  (it notes when the interpreter had come up)
    except Exception:
        pass
    if os.environ.get("TARE_STACKS"):
        try:
            from tare_inside import stacks

            stacks.start(os.path.dirname(os.environ["TARE_MARKS"]))
        except Exception as problem:
            sys.stderr.write("tare: nobody looks at the stacks: {!r}\n".format(problem))
    sys.meta_path.insert(0, _WhenTheyCome(("torch",) + _FRAMEWORKS))
    _leave_word("x", '{"state": "started"}')  # json is not imported yet, and need not be
_run_the_next_one()
