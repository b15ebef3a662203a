"""Train a network with PyTorch: the built-in program `tare_inside/train.py`."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)

from tare.host import Host, Job
from tare.parts.data_folder import make_synthetic, synthetic_folder
from tare.parts.torch_workload import TorchWorkload
from tare_inside import named


class TorchTrain(TorchWorkload):
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
    phases: bool = False
    """Mark forward, backward and optimiser apart as well."""

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
        if sentences := self.torch_obstacles(host):
            return sentences
        if self.data_path is None:
            return []
        sentence = named.find("data", self.data).obstacle(str(self.data_path), self._items_an_epoch())
        return [] if sentence is None else [sentence]

    def title(self) -> str:
        return f"{named.find('models', self.model).TITLE} training, batch {self.batch}"

    def prepare(self, host: Host) -> None:
        if self.data_path is None:
            make_synthetic(host, self.data, self._item_count())

    def inputs(self) -> tuple[Path, ...]:
        return (self._folder(),)

    def units(self) -> int | None:
        if self.steps_per_epoch is not None:
            return self.epochs * self.steps_per_epoch
        return None if self.data_path is not None else self.epochs * (self._item_count() // self.batch)

    def job(self, place: Host, desk: Path, seed: int) -> Job:
        asked = self.model_dump(mode="json", exclude={"items", "malloc", "python"})
        asked |= {"data_path": str(self._folder()), "seed": seed}
        return self.program(place, desk, "train", asked)

    def _item_count(self) -> int:
        return self.items or int(named.find("data", self.data).ITEMS)

    def _items_an_epoch(self) -> int:
        return self.batch * (self.steps_per_epoch or 1)

    def _folder(self) -> Path:
        return self.data_path or synthetic_folder(self.data, self._item_count())
