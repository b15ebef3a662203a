"""An application from its files to its answers: the built-in program `tare_inside/programs/infer.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import PositiveInt, field_validator

from tare.base.host import Host, Job
from tare.base.rulings import Ruling
from tare.drivers.torch_programs import (
    ApplicationData,
    Rate,
    ServingWorkload,
    Size,
    data_complaints,
    inference_s,
    named_or_hint,
)
from tare_inside import named


class Application(ServingWorkload):
    """Answer requests end to end: pre-process files from disk, run the network, post-process to an answer."""

    short: ClassVar[str | None] = "name"

    name: str = "image"
    """The application: image (classification, ResNet-50), speech (recognition, RNN-T), question (answering,
    BERT-large), recommendation (DLRM). A class in tare_inside/applications.py."""
    batch: PositiveInt = 1
    """Items in a request, which are computed together."""
    requests: PositiveInt = 100
    """Requests, each of `batch` items."""
    rate: Rate | None = None
    """Requests arrive at random, so many a second on average (`50/s`), and wait where all threads are busy; each comes
    when the one before is done by default."""
    data_path: Path | None = None
    """A folder of your own with the real files."""
    items: PositiveInt | None = None
    """How many items the synthetic data set has; as many as are requested, at most the paper's number by default."""

    @field_validator("name")
    @classmethod
    def _name_is_there(cls, name: str) -> str:
        return named_or_hint("applications", "application", name)

    def _complaints(self) -> Iterator[str]:
        yield from super()._complaints()
        yield from data_complaints(self.data_path, self.items, self.batch)

    def _network(self) -> str:
        return str(named.find("applications", self.name).MODEL)

    def _data(self) -> ApplicationData:
        most = max(self.batch, int(named.find("applications", self.name).ITEMS))
        requested = max(self.requests, self.warm_up) * self.batch
        count = self.batch if self.data_path else self.items or min(requested, most)
        return ApplicationData(self.name, self.data_path, count)

    def obstacles(self, host: Host) -> list[Ruling]:
        data = self._data()
        found = self.torch_obstacles(host) or self.module_obstacles(host, data.needs) or self.backend_obstacles(host)
        return found or data.obstacles()

    def title(self) -> str:
        application = named.find("applications", self.name)
        network = named.find("models", application.MODEL).TITLE
        return f"{application.TITLE} ({network}), batch {self.batch}"

    def prepare(self, host: Host) -> None:
        self._data().make(host)

    def inputs(self) -> tuple[Path, ...]:
        return (self._data().folder,)

    def units(self) -> int | None:
        return self.requests

    def guessed_s(self, cores: int) -> float | None:
        size = Size(self._network(), self.device, self.batch, self.pixels, self.scale, cores)
        return inference_s(size, self.requests + self.warm_up, from_files=True)

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        requested = self.model_dump(mode="json", exclude={"name", "items", "rate", "malloc", "python"})
        requested |= {"application": self.name, "data_path": str(self._data().folder)}
        return self.program(place, workdir, "infer", requested | {"rate_per_s": self.rate, "seed": seed})
