"""Small parts for the tests of study and plan, in place of the real ones: those change, and need a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from tare.base.errors import StudyError
from tare.base.host import Host, Job, Scope, Site
from tare.base.rulings import Ruling, obstacle
from tare.base.units import PositiveSeconds, SizeBytes
from tare.parts import find
from tare.parts.protocols import Control, Feed, Part, Platform, Probe, Workload


class _Named:
    called: ClassVar[str]

    @classmethod
    def part_name(cls) -> str:
        return cls.called

    def obstacles(self, host: Host) -> list[Ruling]:
        told = getattr(host, "files", {}).get(f"/obstacles/{self.called}", "").splitlines()
        return [obstacle("needs.hardware", line) for line in told if line]


class _Platform(_Named, Platform):
    def open(self, host: Host, site: Site) -> Host:
        return host

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        return None


class Bare(_Platform):
    called = "bare"


class Docker(_Platform):
    called = "docker"

    image: str | None = None
    cpus: PositiveFloat | None = None
    cpuset: str | None = None
    memory: SizeBytes | None = None

    @model_validator(mode="after")
    def _one_way_to_limit(self) -> Docker:
        if self.cpus is not None and self.cpuset is not None:
            raise ValueError("cpus and cpuset both limit the processor; give one of them")
        return self


class Qemu(_Platform):
    called = "qemu"

    disk: Path = Path("disk.img")
    memory: SizeBytes = 2**31
    boot: PositiveSeconds = 120.0


class _Workload(_Named, Workload):
    def title(self) -> str:
        return self.called

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        return Job((self.called,))


class TorchTrain(_Workload):
    called = "torch_train"

    model: Literal["lenet5", "resnet18"] = "lenet5"
    batch: PositiveInt = 16
    workers: NonNegativeInt = 0
    epochs: PositiveInt = 3
    lr: PositiveFloat = 0.01
    threads: int | Literal["all"] | None = None
    phases: bool = False

    def units(self) -> int | None:
        return self.epochs * 100


class Command(_Workload):
    called = "command"

    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    cwd: Path | None = None


class Null(_Workload):
    called = "null"


class _Probe(_Named, Probe):
    def open(self, host: Host, scope: Scope) -> Feed:
        raise AssertionError("no test opens a stand-in")


class CpuProbe(_Probe):
    called = "cpu"


class MemoryProbe(_Probe):
    called = "memory"


class DiskProbe(_Probe):
    called = "disk"


class CgroupProbe(_Probe):
    called = "cgroup"

    depth: PositiveInt = 1


class _Control(_Named, Control):
    def target(self, host: Host, inputs: Iterable[Path]) -> Any:
        return None

    def read(self, host: Host) -> Any:
        return None

    def write(self, host: Host, state: Any) -> None:
        return None


class PageCache(_Control):
    called = "page_cache"
    short = "state"

    state: Literal["cold", "warm"]


def _cores(value: Any) -> Any:
    """As the real control does it: '0-1' is a list too, and the validator hands on a plain list."""
    return [0, 1] if value == "0-1" else value


class CpuControl(_Control):
    called = "cpu"

    online: Annotated[tuple[NonNegativeInt, ...], BeforeValidator(_cores)]


PARTS: dict[str, dict[str, type[Part]]] = {
    "platforms": {"bare": Bare, "docker": Docker, "qemu": Qemu},
    "workloads": {"torch_train": TorchTrain, "command": Command, "null": Null},
    "probes": {"cpu": CpuProbe, "memory": MemoryProbe, "disk": DiskProbe, "cgroup": CgroupProbe},
    "controls": {"page_cache": PageCache, "cpu": CpuControl},
}


@contextmanager
def stand_ins() -> Iterator[None]:
    """Let studies name the parts above, and no others."""

    def names(kind: find.Kind) -> list[str]:
        return sorted(PARTS[kind])

    def stand_in(kind: find.Kind, name: str) -> type[Part]:
        if name not in PARTS[kind]:
            raise StudyError(f"there is no {name}")
        return PARTS[kind][name]

    with pytest.MonkeyPatch.context() as patch, instead_of_find(stand_in):
        patch.setattr(find, "names", names)
        yield


@contextmanager
def instead_of_find(finder: Callable[..., Any]) -> Iterator[None]:
    """Its own patch, undone at once: a test's shared one would be undone after the stand-ins are gone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "find", finder)
        yield
