"""Train a network with PyTorch: the built-in program `tare_inside/workloads/programs/train.py`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)

from tare.base.errors import unknown_name
from tare.base.host import Host, Job
from tare.base.rulings import Ruling
from tare.drivers.storage.checkpoints import checkpoint_folder
from tare.drivers.storage.data_sets import folder_obstacles, make_synthetic, synthetic_folder
from tare.drivers.torch_programs import PASSES, TorchWorkload, load_s, training_s
from tare.parts.protocols import Machine
from tare_inside import named

REHEARSED_STEPS, REHEARSED_S = 5, 1.0  # of a rehearsal: at least so many, and so long on a small machine
_FED_WITH = {"image": "image", "tokens": "text"}  # the KIND of a network -> the KIND of the data that it learns from


class TorchTrain(TorchWorkload):
    """Train a network with SGD and cross-entropy on data that lie on disk, and mark each mini-batch."""

    model: str = "lenet5"
    """The network: a class in tare_inside/workloads/models.py."""
    data: str = "mnist"
    """The data set: a file in tare_inside/workloads/data. Synthetic, as large as the real one, unless `data_path`."""
    data_path: Path | None = None
    """A folder of your own with the real files."""
    items: PositiveInt | None = None
    """How many items the synthetic data set has; as many as the real one by default."""
    source: Literal["disk", "memory"] = "disk"
    """`memory`: some items are made ready once, before anything is timed, and used again and again: no fetching from
    disk and no decoding is left in the loop, which is what `stall-anatomy` takes the difference to."""
    pixels: PositiveInt | None = None
    """Side of the images after they are resized; what the network was made for by default."""
    length: PositiveInt | None = None
    """Tokens in a text; what the network was made for by default."""
    classes: PositiveInt | None = None
    """Classes that the network distinguishes; as many as the data have by default (for text: its vocabulary)."""
    scale: float = Field(default=1.0, gt=0, le=1)
    """Shrinks the network, where it can be shrunk, for a small machine."""
    batch: PositiveInt = 16
    """Items in a mini-batch."""
    workers: NonNegativeInt = 4
    """Loader processes; 0 loads in the training process."""
    prefetch: PositiveInt = 2
    """Mini-batches that each worker loads ahead; without workers nothing is."""
    pin: bool = False
    """Loads into pinned memory, from which a GPU copies while it computes (with `timing: async`)."""
    epochs: PositiveInt = 3
    """Passes over the data. The first is kept apart in every figure."""
    steps_per_epoch: PositiveInt | None = 100
    """Mini-batches in an epoch; null takes the whole data set."""
    lr: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    """Learning rate."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of SGD."""
    timing: Literal["sync", "async"] = "sync"
    """On a GPU. `sync`: wait for it after each step, as papers do; `async`: wait for nothing, read its events later."""
    phases: bool = False
    """Mark forward, backward and optimiser apart as well."""
    checkpoint_every: PositiveInt | None = None
    """Writes the network and its optimiser to disk after every so many epochs, into a folder in /var/tmp that goes with
    the trial; in no step's time. In a container they lie in its own layer."""
    checkpoint_file: Literal["new", "same"] = "new"
    """`new`: each checkpoint is a file of its own; `same`: one file, overwritten in place."""
    marks: bool = True
    """Without marks there is only `mean_step_s`: the other side of what marking costs."""

    @field_validator("model", "data")
    @classmethod
    def _is_there(cls, name: str, info: Any) -> str:
        kind = "models" if info.field_name == "model" else "data"
        here = named.names(kind)
        if name in here:
            return name
        raise ValueError(unknown_name(str(info.field_name), name, here))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for sentence in (
            *self._network_and_data(), *self._data_and_their_size(), *self._how_it_is_timed(), *self._checkpoints(),
        ):  # fmt: skip
            raise ValueError(sentence)
        return self

    def _network_and_data(self) -> Iterator[str]:
        """Why this network cannot learn from these data, or cannot be made in this size."""
        model, data = named.find("models", self.model), named.find("data", self.data)
        wanted = _FED_WITH.get(model.KIND)
        if wanted is None:
            yield f"{self.model} is for inference; here only networks for images and text are trained"
        elif wanted != data.KIND:
            fitting = [name for name in named.names("data") if wanted == named.find("data", name).KIND]
            yield f"{self.model} learns from {wanted} data and {self.data} is {data.KIND}; use {', '.join(fitting)}"
        if self.pixels is not None and model.KIND != "image":
            yield f"`pixels` is for images and {self.model} takes text; set `length`"
        if self.length is not None and model.KIND == "image":
            yield f"`length` is for text and {self.model} takes images; set `pixels`"
        if self.scale != 1 and "scale" not in inspect.signature(model.build).parameters:
            yield f"{self.model} cannot be scaled: leave `scale` out"

    def _data_and_their_size(self) -> Iterator[str]:
        if self.data_path is not None:
            if self.items is not None:
                yield "`items` is the size of synthetic data; with `data_path` the files say it"
            if not self.data_path.is_absolute():
                yield f"`data_path` is an absolute path, not {str(self.data_path)!r}"
        elif self._item_count() < self._items_an_epoch():
            yield (
                f"an epoch of {self.steps_per_epoch or 1} mini-batches of {self.batch} needs "
                f"{self._items_an_epoch()} items and there are {self._item_count()}"
            )

    def _how_it_is_timed(self) -> Iterator[str]:
        if self.device == "cpu" and self.timing == "async":
            yield "`timing: async` is for a GPU: on a CPU a step is over when it returns. Set `device: cuda`"
        if self.device == "cpu" and self.pin:
            yield "`pin` is for a GPU: leave it out, or set `device: cuda`"
        if self.phases and not self.marks:
            yield "`phases` are marks, and `marks` is false: set one of them"

    def _checkpoints(self) -> Iterator[str]:
        if self.checkpoint_every is None and self.checkpoint_file != "new":
            yield "`checkpoint_file` says how checkpoints are written, and there are none: set `checkpoint_every`"
        if self.checkpoint_every is not None and self.checkpoint_every > self.epochs:
            yield f"`checkpoint_every: {self.checkpoint_every}` never comes in {self.epochs} epochs"

    def obstacles(self, host: Host) -> list[Ruling]:
        data = named.find("data", self.data)
        if found := self.torch_obstacles(host) + self.module_obstacles(host, getattr(data, "NEEDS", ())):
            return found
        if self.data_path is None:
            return []
        return folder_obstacles(self.data, self.data_path, self._items_an_epoch())

    def title(self) -> str:
        return f"{named.find('models', self.model).TITLE} training, batch {self.batch}"

    def shortened(self) -> Self:
        """One epoch of a few mini-batches, or as many epochs as a checkpoint takes."""
        forward_s = self.forward_s(self.model, self.batch, self.pixels, self.scale, Machine())
        wanted = int(REHEARSED_S / (PASSES * forward_s + load_s(self.data, self.batch)))
        all_steps = self.steps_per_epoch or (REHEARSED_STEPS if self.data_path else self._item_count() // self.batch)
        steps = min(all_steps, max(REHEARSED_STEPS, wanted))
        return self.model_copy(update={"epochs": self.checkpoint_every or 1, "steps_per_epoch": steps})

    def prepare(self, host: Host) -> None:
        if self.data_path is None:
            make_synthetic(host, self.data, self._item_count())

    def inputs(self) -> tuple[Path, ...]:
        return (self._folder(),)

    def units(self) -> int | None:
        if not self.marks:
            return 0
        if self.steps_per_epoch is not None:
            return self.epochs * self.steps_per_epoch
        return None if self.data_path is not None else self.epochs * (self._item_count() // self.batch)

    def guessed_s(self, machine: Machine) -> float | None:
        steps = self.steps_per_epoch or (None if self.data_path else self._item_count() // self.batch)
        if steps is None:
            return None
        forward_s = self.forward_s(self.model, self.batch, self.pixels, self.scale, machine)
        return training_s(forward_s, load_s(self.data, self.batch), self.epochs * steps, self.workers)

    def saves(self) -> bool:
        return self.checkpoint_every is not None

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        requested = self.model_dump(mode="json", exclude={"items", "malloc", "python", "marks"})
        requested |= {"data_path": str(self._folder()), "seed": seed, "marked": self.marks}
        requested["checkpoint_folder"] = str(checkpoint_folder(workdir))
        return self.program(place, workdir, "train", requested)

    def _item_count(self) -> int:
        return self.items or int(named.find("data", self.data).ITEMS)

    def _items_an_epoch(self) -> int:
        return self.batch * (self.steps_per_epoch or 1)

    def _folder(self) -> Path:
        return self.data_path or synthetic_folder(self.data, self._item_count())
