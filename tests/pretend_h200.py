"""A GPU for tests: the pretended NVML in the place of the real one, in this process or in another."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tare.drivers import nvidia

FOLDER = Path(__file__).with_name("pretend_nvml")


def put_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The pretended library, fresh, which the door opens from now on."""
    spec = importlib.util.spec_from_file_location("pynvml", FOLDER / "pynvml.py")
    assert spec is not None
    assert spec.loader is not None
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    library.begin()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(nvidia, "_opened", {})
    return library


def kept_in(path: Path, monkeypatch: pytest.MonkeyPatch, **state: Any) -> None:
    """The same for processes that are started from here: one GPU, whose state lies in a file."""
    path.write_text(json.dumps(state))
    monkeypatch.setenv("PRETEND_NVML", str(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]))
