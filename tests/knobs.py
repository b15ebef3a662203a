"""Controls that only tests know: one knob is one file of the host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tare.base.host import Host
from tare.base.processes import Owner
from tare.base.rulings import Ruling
from tare.parts import find as parts
from tare.parts.protocols import Control, Json, Part
from tare.testing import FakeHost
from tare.trial.undo.journal import Journal

if TYPE_CHECKING:
    import pytest  # the driver of the kill sweeps does without

DEAD = Owner(4_194_304, 1)  # beyond the largest pid that Linux gives out
DEVICE = "0123456789abcdef"


class FileKnob(Control):
    """Puts a value into a file."""

    file: Literal["a", "b", "c"]
    value: str = "new"

    @classmethod
    def part_name(cls) -> str:
        return "file_knob"

    def knob(self) -> str:
        return f"{self.part_name()} {self.file}"

    def obstacles(self, host: Host) -> list[Ruling]:
        return []

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        return self.value

    def read(self, host: Host) -> Json | None:
        return host.read(f"/sys/knobs/{self.file}").strip()

    def write(self, host: Host, state: Json) -> None:
        host.write(f"/sys/knobs/{self.file}", f"{state}\n")


class EarlyKnob(FileKnob):
    """One that must be put back before the others."""

    restore_rank: ClassVar[int] = 10

    @classmethod
    def part_name(cls) -> str:
        return "early_knob"


class LastingKnob(FileKnob):
    """One that a reboot does not heal."""

    persistence: ClassVar[Literal["volatile", "reboot-persistent"]] = "reboot-persistent"

    @classmethod
    def part_name(cls) -> str:
        return "lasting_knob"


OURS: Mapping[str, type[Part]] = {kind.part_name(): kind for kind in (FileKnob, EarlyKnob, LastingKnob)}


def make_findable(monkeypatch: pytest.MonkeyPatch, **more: type[Part]) -> None:
    """As if the knobs, and the parts in `more`, were installed."""
    real, known = parts.find, {**OURS, **more}
    monkeypatch.setattr(parts, "find", lambda kind, name: known[name] if name in known else real(kind, name))


def make_findable_for_good() -> None:
    """The same in a process that does nothing else."""
    real = parts.find
    parts.find = lambda kind, name: OURS[name] if name in OURS else real(kind, name)


def knob_host(**values: str) -> FakeHost:
    """A fake device whose knobs stand at `values`; by default all three at `old`."""
    values = values or {"a": "old", "b": "old", "c": "old"}
    return FakeHost(files={f"/sys/knobs/{name}": f"{value}\n" for name, value in values.items()})


def stand(host: FakeHost) -> dict[str, str]:
    """How the knobs stand."""
    return {path.rpartition("/")[2]: value.strip() for path, value in host.files.items() if "/knobs/" in path}


def journal_in(tmp_path: Path, **keywords: Any) -> Journal:
    """A journal in the layout of a state folder."""
    return Journal(tmp_path / "devices" / DEVICE, **{"boot": "boot-1", "now_s": lambda: 1000.0, **keywords})


def lines(journal: Journal) -> list[dict[str, Any]]:
    """What is in the file, as plain data."""
    return [json.loads(line) for line in journal.path.read_text().splitlines()]
