"""Train a network with PyTorch: the built-in program `tare_inside/train.py`."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)

from tare.errors import TareError
from tare.host import Completed, Host, Job
from tare.parts.inside import SOURCE, Malloc, built_in_env, launched
from tare.parts.protocols import Workload
from tare_inside import named

DATA_SEED = 0  # the data are the same in every trial; what a trial's seed changes is their order and the first weights
_LOOK_FOR_TORCH = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('torch') else 3)"
_LOOK_FOR_CUDA = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 3)"
_ABSENT = 3  # the exit code by which the two above say no


def data_dir() -> Path:
    """Where data sets are kept: $TARE_DATA, else the user's cache."""
    if own := os.environ.get("TARE_DATA"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tare" / "data"


class TorchTrain(Workload):
    """Train a network with SGD on images that lie on disk, and mark each mini-batch."""

    model: str = "lenet5"
    """The network: a file in tare_inside/models."""
    data: str = "mnist"
    """The data set: a file in tare_inside/data. Synthetic, of the real one's format and size, unless `data_path`."""
    data_path: Path | None = None
    """A folder of your own with the real files."""
    items: PositiveInt | None = None
    """How many items the synthetic data set has; as many as the real one unless said."""
    batch: PositiveInt = 16
    """Items in a mini-batch."""
    workers: NonNegativeInt = 0
    """Loader processes; 0 loads in the training process."""
    prefetch: PositiveInt | None = None
    """Mini-batches that each worker loads ahead; torch's default unless said."""
    epochs: PositiveInt = 3
    """Passes over the data. The first is kept apart in every figure."""
    steps_per_epoch: PositiveInt | None = 100
    """Mini-batches in an epoch; null takes the whole data set."""
    lr: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    """Learning rate."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of SGD."""
    threads: PositiveInt | None = None
    """Threads of torch and OpenMP; their own choice unless said."""
    malloc: Malloc = "fixed"
    """`fixed`: the allocator keeps freed memory, which else flips between identical runs; `default`: it chooses."""
    phases: bool = False
    """Mark forward, backward and optimiser apart as well."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute. On a GPU each step is waited for."""
    python: str | None = None
    """The interpreter that has torch, if it is not the platform's own."""

    @field_validator("model", "data")
    @classmethod
    def _is_there(cls, name: str, info: Any) -> str:
        kind = "models" if info.field_name == "model" else "data"
        here = named.names(kind)
        if name in here:
            return name
        close = difflib.get_close_matches(name, here, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no {info.field_name} {name!r}. There is: {', '.join(here)}.{hint}")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.prefetch is not None and self.workers == 0:
            raise ValueError("`prefetch` is for loader workers: set `workers` to 1 or more, or leave it out")
        if self.data_path is not None and self.items is not None:
            raise ValueError("`items` is the size of synthetic data; with `data_path` the files say it")
        if self.data_path is not None and not self.data_path.is_absolute():
            raise ValueError(f"`data_path` is an absolute path, not {str(self.data_path)!r}")
        if self.data_path is None and self._item_count() < self._items_an_epoch():
            raise ValueError(
                f"an epoch of {self.steps_per_epoch or 1} mini-batches of {self.batch} needs "
                f"{self._items_an_epoch()} items and there are {self._item_count()}"
            )
        return self

    def obstacles(self, host: Host) -> list[str]:
        python = self.python or host.python
        sentence = _without_torch(python, host.run([python, "-c", _LOOK_FOR_TORCH]))
        if sentence is None and self.device == "cuda":
            sentence = _without_cuda(python, host.run([python, "-c", _LOOK_FOR_CUDA], limit_s=120))
        if sentence is None and self.data_path is not None:
            sentence = named.find("data", self.data).obstacle(str(self.data_path), self._items_an_epoch())
        return [] if sentence is None else [sentence]

    def title(self) -> str:
        return f"{named.find('models', self.model).TITLE} training, batch {self.batch}"

    def prepare(self, host: Host) -> None:
        if self.data_path is not None:
            return
        maker = SOURCE / "data" / f"{self.data}.py"
        argv = [host.python, str(maker), str(self._folder()), str(self._item_count()), str(DATA_SEED)]
        made = host.run(argv, limit_s=600)
        if made.code != 0:
            raise TareError(
                f"the data set for {self.title()} could not be made in {self._folder()}.\n"
                f"{(made.err or made.out).strip()[-1000:]}\nSet TARE_DATA to a folder with room for it."
            )

    def inputs(self) -> tuple[Path, ...]:
        return (self._folder(),)

    def units(self) -> int | None:
        if self.steps_per_epoch is not None:
            return self.epochs * self.steps_per_epoch
        return None if self.data_path is not None else self.epochs * (self._item_count() // self.batch)

    def job(self, place: Host, desk: Path, seed: int) -> Job:
        python = self.python or place.python
        asked = self.model_dump(mode="json", exclude={"items", "malloc", "python"})
        files = {name: str(desk / f"{name}.json") for name in ("outcome", "fingerprint")}
        asked |= {**files, "marks": str(desk / "marks.bin"), "data_path": str(self._folder()), "seed": seed}
        env = built_in_env(desk, self.malloc)
        if self.threads is not None:
            env["OMP_NUM_THREADS"] = str(self.threads)  # some of torch's libraries do not ask torch
        argv = (python, "-m", "tare_inside.train", json.dumps(asked, sort_keys=True))
        return Job(launched(place.python, desk, argv), env, str(desk))

    def _item_count(self) -> int:
        return self.items or int(named.find("data", self.data).ITEMS)

    def _items_an_epoch(self) -> int:
        return self.batch * (self.steps_per_epoch or 1)

    def _folder(self) -> Path:
        if self.data_path is not None:
            return self.data_path
        return data_dir() / str(named.find("data", self.data).folder_name(self._item_count(), DATA_SEED))


def _without_torch(python: str, asked: Completed) -> str | None:
    if asked.code == 0:
        return None
    if asked.code == _ABSENT:
        return (
            f"{python} has no PyTorch: `{python} -m pip install torch` puts it there, "
            "or set `python` of torch_train to an interpreter that has it."
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
