"""What the workloads that answer requests share: networks alone, applications, and both under LoadGen."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from tare.host import Host
from tare.measures import parse_quantity
from tare.parts.data_folder import folder_obstacle, make_synthetic, synthetic_folder
from tare.parts.inside import SOURCE
from tare.parts.near_name import hint
from tare.parts.torch_workload import TorchWorkload
from tare_inside import named

_A_SECOND = {"/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600}
_ASK_BACKEND = (
    "import sys; sys.path.insert(0, sys.argv[1]); from tare_inside import named; "
    "print(named.find('backends', sys.argv[2]).obstacle(sys.argv[3]) or '')"
)


def _rate(value: Any) -> Any:
    """`50/s` as 50.0; a plain number comes from code and records, and is a rate already."""
    return value if isinstance(value, float) else parse_quantity(value, _A_SECOND, "rate")


Rate = Annotated[float, BeforeValidator(_rate), Field(gt=0)]
"""How many a second."""


class ServingWorkload(TorchWorkload):
    """Answer requests, each of them a batch of items."""

    batch: PositiveInt = 16
    """Items in a request, which are computed together."""
    concurrency: PositiveInt = 1
    """Requests in flight: each has a thread, and on a GPU a stream, of its own."""
    warm_up: NonNegativeInt = 5
    """Requests that are answered before anything is timed."""
    backend: str = "eager"
    """What runs the network: a file in tare_inside/backends (eager, compile, onnx)."""
    scale: float = Field(default=1.0, gt=0, le=1)
    """Shrinks the network, where it can be shrunk, for a small machine."""
    pixels: PositiveInt | None = None
    """Side of the images that the network gets; what it was made for by default."""

    @field_validator("backend")
    @classmethod
    def _backend_is_there(cls, name: str) -> str:
        return named_or_hint("backends", "backend", name)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for sentence in self._complaints():
            raise ValueError(sentence)
        return self

    def _complaints(self) -> Iterator[str]:
        """Why these fields do not go together."""
        model = named.find("models", self._network())
        if self.scale != 1 and "scale" not in inspect.signature(model.build).parameters:
            yield f"{self._network()} comes in one size only: leave `scale` out"
        if self.pixels is not None and model.KIND != "image":
            yield f"`pixels` is for images and {self._network()} takes {model.KIND}: leave it out"

    @abstractmethod
    def _network(self) -> str:
        """The name of the network that computes."""

    def backend_obstacles(self, host: Host) -> list[str]:
        """Why the interpreter cannot use the back end, in the back end's own words."""
        if self.backend == "eager":
            return []
        python = self.python or host.python
        asked = host.run([python, "-c", _ASK_BACKEND, str(SOURCE.parent), self.backend, self.device], limit_s=120)
        if asked.code == 0:
            return [sentence] if (sentence := asked.out.strip()) else []
        said = (asked.err or asked.out).strip().splitlines()[-1:]
        return [f"{python} could not be asked whether `backend: {self.backend}` works: {' '.join(said)}"]


class ApplicationData:
    """The data of an application: a folder of the user's own, or a synthetic one of as many items as are asked for."""

    def __init__(self, application: str, data_path: Path | None, items: int) -> None:
        module = named.find("applications", application)
        self.name = str(module.DATA)
        self._own, self._lines = data_path, items * int(getattr(module, "LINES_AN_ITEM", 1))
        self._synthetic = data_path is None

    @property
    def folder(self) -> Path:
        return self._own or synthetic_folder(self.name, self._lines)

    @property
    def needs(self) -> tuple[str, ...]:
        """The modules beside torch that reading them takes."""
        return tuple(getattr(named.find("data", self.name), "NEEDS", ()))

    def make(self, host: Host) -> None:
        if self._synthetic:
            make_synthetic(host, self.name, self._lines)

    def obstacles(self) -> list[str]:
        """Why the user's own folder cannot be used."""
        if self._own is None:
            return []
        sentence = folder_obstacle(self.name, self._own, self._lines)
        return [] if sentence is None else [sentence]


def data_complaints(data_path: Path | None, items: int | None, batch: int) -> Iterator[str]:
    """Why these fields about an application's data do not go together."""
    if data_path is not None and items is not None:
        yield "`items` is the size of synthetic data; with `data_path` the files say it"
    if data_path is not None and not data_path.is_absolute():
        yield f"`data_path` is an absolute path, not {str(data_path)!r}"
    if items is not None and items < batch:
        yield f"a batch of {batch} needs {batch} items and `items` is {items}"


def named_or_hint(kind: str, field: str, name: str) -> str:
    """The name, if there is such a file in tare_inside; else what there is, and what was probably meant."""
    here = named.names(kind)
    if name in here:
        return name
    raise ValueError(f"there is no {field} {name!r}. There is: {', '.join(here)}. {hint(name, here)}".rstrip())
