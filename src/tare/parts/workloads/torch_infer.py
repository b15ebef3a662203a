"""Inference with a network on data that lie in memory: the built-in program `tare_inside/programs/infer.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import PositiveInt, field_validator

from tare.base.host import Host, Job
from tare.base.rulings import Ruling
from tare.drivers.torch_programs import Rate, ServingWorkload, Size, inference_s, named_or_hint
from tare_inside import named

REHEARSED_REQUESTS = 5


class TorchInfer(ServingWorkload):
    """Run a network on images in memory, request by request, and mark each: the papers' inference alone."""

    model: str = "lenet5"
    """The network: a class in tare_inside/models.py that takes images."""
    requests: PositiveInt = 300
    """Requests, each a mini-batch of `batch` images."""
    rate: Rate | None = None
    """Requests arrive at random, so many a second on average (`50/s`), and wait where all threads are busy; each comes
    when the one before is done by default."""
    timing: Literal["sync", "async"] = "sync"
    """On a GPU. `sync`: wait for it after each request, as papers do; `async`: wait for nothing, read its events."""

    @field_validator("model")
    @classmethod
    def _model_is_there(cls, name: str) -> str:
        return named_or_hint("models", "model", name)

    def _complaints(self) -> Iterator[str]:
        yield from super()._complaints()
        if (kind := named.find("models", self.model).KIND) != "image":
            yield f"{self.model} takes {kind}: data in memory are images. `application` runs networks for other data"
        if self.timing == "async" and self.device == "cpu":
            yield "`timing: async` is for a GPU: on a CPU a request is over when it returns. Set `device: cuda`"
        if self.timing == "async" and (self.concurrency > 1 or self.rate is not None or self.backend == "onnx"):
            yield (
                "`timing: async` reads the events of one request after another in PyTorch: leave `concurrency`, "
                "`rate` and `backend: onnx` out"
            )

    def _network(self) -> str:
        return self.model

    def obstacles(self, host: Host) -> list[Ruling]:
        return self.torch_obstacles(host) or self.backend_obstacles(host)

    def title(self) -> str:
        return f"{named.find('models', self.model).TITLE} inference, batch {self.batch}"

    def shortened(self) -> Self:
        return self.model_copy(update={"requests": min(self.requests, REHEARSED_REQUESTS), "warm_up": 1})

    def units(self) -> int | None:
        return self.requests

    def guessed_s(self, cores: int) -> float | None:
        size = Size(self.model, self.device, self.batch, self.pixels, self.scale, cores)
        return inference_s(size, self.requests + self.warm_up, from_files=False)

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        requested = self.model_dump(mode="json", exclude={"rate", "malloc", "python"})
        return self.program(place, workdir, "infer", requested | {"rate_per_s": self.rate, "seed": seed})
