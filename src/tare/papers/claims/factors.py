"""What a record's settings mean to the claims: who is a container, which model is light, which medium is slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from tare.analysis import parity
from tare.analysis.cells import placed
from tare.analysis.labels import text
from tare.records.model import Record
from tare.records.trials import collected

Value: TypeAlias = str | float | bool
Cell: TypeAlias = frozenset[tuple[str, Value]]

CONTAINERS = ("docker", "podman", "runc", "gvisor")
MACHINES = ("qemu", "uml")
MICRO_MACHINES = ("microvm", "firecracker")
TRAINING = ("torch_train",)
_NOT_FACTORS = ("probes", "platform.python")

# Multiply-adds of one item, in millions, as the papers' tables have them (S0 II, S3 2) or as the networks are defined.
MILLIONS: Mapping[str, float] = {
    "lenet5": 4.4, "mobilenet_v3_large": 225.4, "squeezenet": 349.0, "alexnet": 714.0, "resnet18": 1_820.0,
    "resnet50": 4_000.0, "mobilebert": 5_700.0, "vgg11": 7_630.0, "bert_large": 123_000.0,
    "nasnet": 573.0, "googlenet": 1_586.0, "resnet152": 11_559.0,
}  # fmt: skip
MEDIA = ("hdd", "sd", "emmc", "ssd", "nvme", "tmpfs", "memory")  # from the slowest
_MEDIUM = ("emulate", "storage", "medium", "disk", "media")


def cell_of(record: Record) -> Cell:
    """The settings that tell a trial's cell from others, without what is None; a stack has its outermost placement."""
    found: dict[str, Value] = {}
    for name, value in sorted(placed(record).settings.items()):
        if value is None or name in _NOT_FACTORS:
            continue
        last = name.rpartition(".")[2]
        if not name.startswith("platform."):
            found[name] = plain(value)
        elif last == "isolation" and isinstance(value, list | tuple):
            found["platform.seccomp"] = "seccomp" in value
            found["platform.isolation"] = text(sorted(str(layer) for layer in value if layer != "seccomp"))
        else:
            found[name] = plain(value)
    return frozenset(found.items())


def plain(value: Any) -> Value:
    return value if isinstance(value, str | int | float | bool) else text(value)


def level(cell: Cell, name: str) -> Value | None:
    return _by_name(cell).get(name)


_by_name: Callable[[Cell], dict[str, Value]] = lru_cache(maxsize=4096)(dict)


def stack_names(cell: Cell) -> tuple[str, ...]:
    """The platforms of a cell, outermost first: `qemu+docker` has two."""
    return tuple(str(level(cell, "platform") or "").split("+"))


def is_bare(cell: Cell) -> bool:
    return stack_names(cell) == ("bare",)


def is_container(cell: Cell) -> bool:
    found = stack_names(cell)
    return len(found) == 1 and found[0] in CONTAINERS


def is_machine(cell: Cell) -> bool:
    found = stack_names(cell)
    return len(found) == 1 and found[0] in MACHINES


def is_micro_machine(cell: Cell) -> bool:
    found = stack_names(cell)
    return len(found) == 1 and found[0] in MICRO_MACHINES


def is_container_in_machine(cell: Cell) -> bool:
    found = stack_names(cell)
    return len(found) == 2 and found[0] in (*MACHINES, *MICRO_MACHINES) and found[1] in CONTAINERS


def is_virtual(cell: Cell) -> bool:
    return not is_bare(cell)


def on(platform: str) -> Callable[[Cell], bool]:
    """Whether a cell is on this platform."""
    return lambda cell: level(cell, "platform") == platform


def trains(record: Record) -> bool:
    return record.settings.get("workload") in TRAINING


def infers(record: Record) -> bool:
    return record.settings.get("workload") in parity.INFERENCE


def medium_rank(medium: Value) -> float | None:
    """Its place from the slowest; None for a medium that is known by its path alone."""
    return float(MEDIA.index(str(medium))) if str(medium) in MEDIA else None


def weight(model: Value) -> float | None:
    """How much computing a model takes; None for one that is not in the table."""
    return MILLIONS.get(str(model))


def factor_named(cells: Mapping[Cell, object], *names: str) -> str | None:
    """The setting that ends in one of these names (`control.power_mode.cpu_mhz` for `cpu_mhz`), and varies most."""
    settings = {item for cell in cells for item in cell if item[0] in names or item[0].rpartition(".")[2] in names}
    seen = collected(settings)
    return max(seen, key=lambda key: (len(seen[key]), key), default=None)


def is_medium(name: str) -> bool:
    """Whether a setting says which storage medium is used."""
    return name in _MEDIUM or name.rpartition(".")[2] in _MEDIUM


def medium_factor(cells: Mapping[Cell, object]) -> str | None:
    return factor_named(cells, *_MEDIUM)
