"""Machine tests: skipped with the obstacle as the reason, or failed where TARE_REQUIRE names the part."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import sshd_devices
from tare.host import LocalHost
from tare.parts.find import find, names


def _command(name: str) -> Callable[[], list[str]]:
    return lambda: [] if shutil.which(name) else [f"there is no {name} on this machine."]


def _root() -> list[str]:
    return [] if os.geteuid() == 0 else ["this needs root."]


def _tracefs() -> list[str]:
    known = "tracefs" in Path("/proc/filesystems").read_text()
    return _root() if known else ["this kernel has no tracefs."]


def _module(name: str, package: str) -> Callable[[], list[str]]:
    found = importlib.util.find_spec(name) is not None
    return lambda: [] if found else [f"there is no {package} in this Python."]


def _cuda() -> list[str]:
    try:
        import torch
    except ImportError:
        return ["there is no torch here."]
    return [] if torch.cuda.is_available() else ["torch sees no GPU here."]


def _shown_inside() -> list[str]:
    hidden = Path(sys.prefix).is_relative_to("/tmp")
    return ["this environment lies in /tmp, and an image has a /tmp of its own."] if hidden else []


_LOOKS = {
    "environment outside /tmp": _shown_inside,
    "cuda": _cuda,
    "root": _root,
    "tracefs": _tracefs,
    "strace": _command("strace"),
    "trace-cmd": _command("trace-cmd"),
    "perf": lambda: [*_command("perf")(), *_root()],
    "chromium": _command("chromium"),
    "loadgen": _module("mlperf_loadgen", "mlcommons-loadgen"),
    "sshd": lambda: [*sshd_devices.obstacles(), *_module("distributed", "dask.distributed")()],
    "distributed": _module("distributed", "dask.distributed"),
    "python 3.6": lambda: [] if sshd_devices.python36() else ["there is no Python 3.6 on this machine."],
    "onnxruntime": _module("onnxruntime", "onnxruntime"),
}


@cache
def obstacles(part: str) -> tuple[str, ...]:
    """Why this part of the machine cannot be used here, in sentences."""
    if part in _LOOKS:
        return tuple(_LOOKS[part]())
    if part in names("platforms"):
        return tuple(find("platforms", part)().obstacles(LocalHost()))  # type: ignore[attr-defined]
    return (f"nobody knows how to look for {part!r}.",)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Machine tests run alone, unless their module says RUNS_BESIDE_OTHERS; `deep` ones only with TARE_DEEP=1."""
    for item in items:
        module = getattr(item, "module", None)
        if "machine" in item.path.parts and not getattr(module, "RUNS_BESIDE_OTHERS", False):
            item.add_marker("alone")
    if os.environ.get("TARE_DEEP", "") not in ("", "0"):
        return
    deep = [item for item in items if item.get_closest_marker("deep")]
    items[:] = [item for item in items if item not in deep]
    config.hook.pytest_deselected(items=deep)


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("TARE_REQUIRE", "").replace(",", " ").split()
    for marker in item.iter_markers("machine"):
        for part in marker.args:
            if found := obstacles(part):
                reason = f"{part}: {' '.join(found)}"
                if part in required:
                    pytest.fail(f"required here (TARE_REQUIRE), but {reason}", pytrace=False)
                pytest.skip(reason)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the state of the person who runs it."""
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TARE_LOCK_DIR", str(tmp_path / "lock"))
    monkeypatch.setenv("TARE_GUARDIAN", "off")  # tests of what a dead run leaves must find it
