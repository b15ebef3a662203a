"""Inference: a network alone, an application from its files to its answers (`infer.py`), and MLCommons LoadGen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, PositiveInt, field_validator

from tare.base.declare import Metric
from tare.base.host import Host, Job
from tare.base.rulings import Ruling, obstacle
from tare.base.units import PositiveSeconds
from tare.drivers.torch_programs import (
    START_S,
    ApplicationData,
    Rate,
    ServingWorkload,
    data_complaints,
    inference_s,
    load_s,
    named_or_hint,
)
from tare.parts.protocols import Machine
from tare_inside import named

REHEARSED_REQUESTS = 5


class TorchInfer(ServingWorkload):
    """Run a network on images in memory, request by request, and mark each: the papers' inference alone."""

    model: str = "lenet5"
    """The network: a class in tare_inside/workloads/models.py that takes images."""
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

    def guessed_s(self, machine: Machine) -> float | None:
        forward_s = self.forward_s(self.model, self.batch, self.pixels, self.scale, machine)
        return inference_s(forward_s, self.requests + self.warm_up, self.rate)

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        requested = self.model_dump(mode="json", exclude={"rate", "malloc", "python"})
        return self.program(place, workdir, "infer", requested | {"rate_per_s": self.rate, "seed": seed})


class Application(ServingWorkload):
    """Answer requests end to end: pre-process files from disk, run the network, post-process to an answer."""

    short: ClassVar[str | None] = "name"

    name: str = "image"
    """The application: image (classification, ResNet-50), speech (recognition, RNN-T), question (answering,
    BERT-large), recommendation (DLRM). A class in tare_inside/workloads/applications.py."""
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

    def guessed_s(self, machine: Machine) -> float | None:
        forward_s = self.forward_s(self._network(), self.batch, self.pixels, self.scale, machine)
        data = str(named.find("applications", self.name).DATA)
        return inference_s(forward_s + load_s(data, self.batch), self.requests + self.warm_up, self.rate)

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        requested = self.model_dump(mode="json", exclude={"name", "items", "rate", "malloc", "python"})
        requested |= {"application": self.name, "data_path": str(self._data().folder)}
        return self.program(place, workdir, "infer", requested | {"rate_per_s": self.rate, "seed": seed})


_LOOK_FOR_LOADGEN = "import sys\ntry:\n import mlperf_loadgen\nexcept ImportError:\n sys.exit(3)"
_ABSENT = 3
_ITEMS = 64  # of synthetic data, by default


class LoadGen(ServingWorkload):
    """Let MLCommons LoadGen ask, as in MLPerf, and compare its figures with ours from end to end."""

    METRICS = (
        Metric(name="end_to_end_s", words="mean latency from end to end", unit="s", better="lower"),
        Metric(name="loadgen_mean_s", words="mean latency by LoadGen", unit="s", better="lower"),
        Metric(name="loadgen_gap_s", words="latency that LoadGen does not count", unit="s", better="lower"),
        Metric(name="loadgen_samples_per_s", words="samples per second by LoadGen", unit="1/s", better="higher"),
    )

    application: str | None = "image"
    """The application that answers: image, speech, question, recommendation."""
    model: str | None = None
    """A network alone on images in memory, in place of an application."""
    scenario: Literal["SingleStream", "MultiStream", "Server", "Offline"] = "SingleStream"
    """How LoadGen asks: the next query when one is done; the same with several samples; at random; all at once."""
    batch: PositiveInt = 1
    """The most samples that are computed together, of those that were requested."""
    target_qps: Rate = 10.0
    """Queries a second (`10/s`): Server's rate, Offline's guess of how many samples make the time full, and for the
    streams the guess of how quick they are."""
    target_latency: PositiveSeconds = 0.1
    """Server: within which a query must be answered."""
    latency_percentile: float | None = Field(default=None, gt=0, lt=1)
    """The share of queries that the latency is stated for; LoadGen's own by default."""
    min_duration: PositiveSeconds = 10.0
    """LoadGen asks at least so long. MLPerf wants 600 s."""
    min_queries: PositiveInt = 100
    """LoadGen asks at least so many queries."""
    max_queries: PositiveInt | None = None
    """LoadGen stops after so many queries, whatever the time; without it two runs differ in how much they answer."""
    samples_per_query: PositiveInt = 8
    """MultiStream: samples in a query."""
    pre_process: Literal["untimed", "timed"] = "untimed"
    """`untimed`: when samples are loaded, before LoadGen's clock runs, as MLPerf does; `timed`: in the query."""
    data_path: Path | None = None
    """A folder of your own with the real files."""
    items: PositiveInt | None = None
    """How many samples the synthetic data set has; 64 by default."""

    @field_validator("application")
    @classmethod
    def _application_is_there(cls, name: str | None) -> str | None:
        return None if name is None else named_or_hint("applications", "application", name)

    @field_validator("model")
    @classmethod
    def _model_is_there(cls, name: str | None) -> str | None:
        return None if name is None else named_or_hint("models", "model", name)

    def _complaints(self) -> Iterator[str]:
        if (self.application is None) == (self.model is None):
            yield "either an `application` or a `model` answers: with `model`, set `application: null`"
            return
        yield from super()._complaints()
        yield from data_complaints(self.data_path, self.items, self.batch)
        if self.model is not None and (self.data_path is not None or self.items is not None):
            yield "a `model` alone takes data in memory: leave `data_path` and `items` out"

    def _network(self) -> str:
        return self.model or str(named.find("applications", self.application or "").MODEL)

    def _data(self) -> ApplicationData | None:
        if self.application is None:
            return None
        count = self.batch if self.data_path else self.items or max(_ITEMS, self.batch)
        return ApplicationData(self.application, self.data_path, count)

    def obstacles(self, host: Host) -> list[Ruling]:
        data = self._data()
        found = self.torch_obstacles(host) or self._without_loadgen(host)
        found = found or self.module_obstacles(host, data.needs if data else ()) or self.backend_obstacles(host)
        return found or (data.obstacles() if data else [])

    def _without_loadgen(self, host: Host) -> list[Ruling]:
        python = self.python or host.python
        if host.run([python, "-c", _LOOK_FOR_LOADGEN]).code != _ABSENT:
            return []
        sentence = (
            f"{python} has no MLCommons LoadGen: `{python} -m pip install mlcommons-loadgen` puts it there "
            "(ready-made for x86-64; elsewhere pip builds it with a C++ compiler)."
        )
        return [obstacle("needs.module", sentence)]

    def title(self) -> str:
        network = named.find("models", self._network()).TITLE
        what = (
            network if self.application is None else f"{named.find('applications', self.application).TITLE} ({network})"
        )
        return f"LoadGen {self.scenario}: {what}"

    def prepare(self, host: Host) -> None:
        if (data := self._data()) is not None:
            data.make(host)

    def inputs(self) -> tuple[Path, ...]:
        data = self._data()
        return () if data is None else (data.folder,)

    def guessed_s(self, machine: Machine) -> float | None:
        return START_S + self.min_duration

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        renamed = {"target_latency", "min_duration"}
        requested = self.model_dump(mode="json", exclude={"items", "malloc", "python", *renamed})
        requested |= {f"{name}_s": getattr(self, name) for name in renamed} | {"seed": seed}
        if (data := self._data()) is not None:
            requested["data_path"] = str(data.folder)
        return self.program(place, workdir, "loadgen", requested)
