"""What every built-in PyTorch program shares: its fields, what keeps it from running here, and how its job is made."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from tare.host import Completed, Host, Job
from tare.parts.inside import Malloc, built_in_env, launched
from tare.parts.protocols import Json, Workload

_LOOK_FOR_TORCH = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('torch') else 3)"
_LOOK_FOR_OTHERS = "import importlib.util as u, sys; print(*[name for name in sys.argv[1:] if not u.find_spec(name)])"
_LOOK_FOR_CUDA = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 3)"
_ABSENT = 3  # the exit code by which the two for torch and CUDA say no
_PACKAGES = {"PIL": "pillow"}  # what to install, where it is not called as it is imported


class TorchWorkload(Workload):
    """A program of ours in `tare_inside` that needs PyTorch."""

    meets = "ready"

    threads: PositiveInt | Literal["quota"] | None = None
    """Threads of torch and OpenMP; their own choice (the machine's cores) by default; `quota`: as many as cores that
    the platform may use."""
    malloc: Malloc = "fixed"
    """`fixed`: the allocator keeps freed memory, which else flips between identical runs; `default`: it chooses."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute."""
    python: str | None = None
    """The interpreter that has torch, if it is not the platform's own."""

    def torch_obstacles(self, host: Host) -> list[str]:
        """Why the interpreter cannot run it: no PyTorch there, or one that sees no GPU."""
        python = self.python or host.python
        sentence = _without_torch(python, host.run([python, "-c", _LOOK_FOR_TORCH]), self.part_name())
        if sentence is None and self.device == "cuda":
            sentence = _without_cuda(python, host.run([python, "-c", _LOOK_FOR_CUDA], limit_s=120))
        return [] if sentence is None else [sentence]

    def module_obstacles(self, host: Host, modules: Sequence[str]) -> list[str]:
        """Which modules beside torch the interpreter lacks: `PIL`, where pictures are decoded."""
        if not modules:
            return []
        python = self.python or host.python
        asked = host.run([python, "-c", _LOOK_FOR_OTHERS, *modules])
        missing = [_PACKAGES.get(name, name) for name in asked.out.split()] if asked.code == 0 else []
        return [
            f"{python} has no {name}, which {self.part_name()} needs here: "
            f"`{python} -m pip install {name}` puts it there."
            for name in missing
        ]

    def program(self, place: Host, desk: Path, module: str, asked: Mapping[str, Json]) -> Job:
        """The job that runs `tare_inside.<module>` with `asked` as its order, and where to leave what it finds."""
        files = {name: str(desk / f"{name}.json") for name in ("outcome", "fingerprint")}
        threads = _cores_of(place) if self.threads == "quota" else self.threads
        order = {**asked, **files, "threads": threads, "marks": str(desk / "marks.bin")}
        env = built_in_env(desk, self.malloc)
        if threads is not None:
            env["OMP_NUM_THREADS"] = str(threads)  # some of torch's libraries do not ask torch
        argv = (self.python or place.python, "-m", f"tare_inside.{module}", json.dumps(order, sort_keys=True))
        return Job(launched(place.python, desk, argv), env, str(desk))


def _cores_of(place: Host) -> int | None:
    """How many cores the place may use, in whole cores; None where that is not known."""
    usable = getattr(place, "facts", {}).get("usable_cores")
    return None if usable is None else max(1, math.ceil(usable))


def _without_torch(python: str, asked: Completed, part: str) -> str | None:
    if asked.code == 0:
        return None
    if asked.code == _ABSENT:
        return (
            f"{python} has no PyTorch: `{python} -m pip install torch` puts it there, "
            f"or name an interpreter that has it: `--python PATH`, or `python` of {part} in the study."
        )
    said = (asked.err or asked.out).strip().splitlines()[-1:]
    return f"{python} could not be asked whether it has PyTorch{': ' + said[0] if said else ''}."


def _without_cuda(python: str, asked: Completed) -> str | None:
    if asked.code == 0:
        return None
    return (
        f"the PyTorch of {python} sees no GPU: check the driver with `nvidia-smi` and that torch was built for CUDA, "
        "or set `device: cpu`."
    )
