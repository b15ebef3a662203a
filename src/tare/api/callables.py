"""A callable as a command: named by its import path, else carried by cloudpickle."""

from __future__ import annotations

import base64
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tare.base.errors import StudyError

RUNNER = "call.py"


def callable_command(
    step: Callable[..., Any], setup: Callable[[], Any] | None, calls: int, folder: Path
) -> tuple[str, ...]:
    """The command line of a process that calls it so often; what it needs is written beside the store."""
    import tare_inside

    if calls < 1:
        raise StudyError("`calls` is how often the callable is called in a trial: at least once.")
    told = {
        "step": reference(step),
        "setup": None if setup is None else reference(setup),
        "calls": calls,
        "path": [str(Path(each or ".").resolve()) for each in sys.path],
    }
    file = folder.with_name(f"{folder.name}.callable.json").resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told), encoding="utf-8")
    runner = Path(tare_inside.__file__).with_name("programs") / RUNNER
    return sys.executable, str(runner), str(file)


def reference(called: Callable[..., Any]) -> dict[str, str]:
    """How another process gets the same callable.

    >>> reference(json.dumps)
    {'module': 'json', 'name': 'dumps'}
    """
    module, name = getattr(called, "__module__", None), getattr(called, "__qualname__", "")
    if module and module != "__main__" and _is_found(module, name, called):
        return {"module": module, "name": name}
    try:
        import cloudpickle
    except ImportError:
        raise StudyError(
            f"{name or called!r} cannot be imported by another process (it is made in {module or 'no module'}, or "
            "inside a function). Put it into a module, or `pip install cloudpickle`, which carries it as it is."
        ) from None
    try:
        return {"pickle": base64.b64encode(cloudpickle.dumps(called)).decode()}
    except Exception as error:  # whatever an object's own reduction raises
        raise StudyError(f"{name or called!r} cannot be carried to another process: {error}.") from None


def _is_found(module: str, name: str, called: Callable[..., Any]) -> bool:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return False
    return found is called
