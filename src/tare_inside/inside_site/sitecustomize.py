"""Python imports this by itself at its start when this folder is on PYTHONPATH: it waits until torch is imported.

Then it runs the sitecustomize that would have run without us, if there is one. A script that never imports torch is
left alone; `attach.json` beside the marks says that a Python was here.
"""

import os
import sys


def _attach(torch):
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


class _WhenTorchComes(object):
    """Finds torch as the others would, and has its loader call us once it is loaded."""

    _looking = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self._looking:
            return None
        import importlib.util

        self._looking = True  # the others are asked now, and we among them
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        # Someone may only have asked whether there is a torch: stay, until one is really loaded.
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._follow(spec.loader)
        return spec

    def _follow(self, loader):
        load = loader.exec_module

        def exec_module(module):
            load(module)
            del loader.exec_module  # leave the loader as it was
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _attach(module)

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
    sys.meta_path.insert(0, _WhenTorchComes())
    _leave_word("x", '{"state": "started"}')  # json is not imported yet, and need not be
_run_the_next_one()
