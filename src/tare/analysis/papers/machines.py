"""A folder of results: RESULTS/MACHINE/STUDY.tare, or the same as store folders; what each machine has.

A folder that holds stores itself is one machine, named after the folder. Stores of a baseload lie beside the study's
own and are read with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare.analysis.cells import text
from tare.analysis.claims.pooling import Source, source_of
from tare.analysis.papers.figures import with_figures
from tare.analysis.parity import flat
from tare.errors import StoreError
from tare.records.model import USABLE, Record
from tare.records.packing import SUFFIX
from tare.records.search import stores_in
from tare.records.store import Store

_BASELOAD = "-baseload"


@dataclass(frozen=True)
class Held:
    """One store of a machine: the study that it is of, and what its trials left."""

    name: str  # "cpu2/s0-container-tax.tare"
    study: str
    source: Source

    @property
    def records(self) -> Sequence[Record]:
        return self.source.records

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the machine could not run, as the study said before it began."""
        return tuple(map(str, self.source.study.get("left_out") or ()))


@dataclass(frozen=True)
class Machine:
    """What was kept of one machine."""

    name: str
    held: tuple[Held, ...]

    def of(self, study: str) -> list[Held]:
        return [each for each in self.held if each.study == study]

    @property
    def device(self) -> Mapping[str, Any]:
        """Board or processor, cores, memory, GPU and kernel, as the first usable trial tells."""
        record = self._first("device")
        facts = flat(record.facts["device"]) if record is not None else {}
        told = {"board": facts.get("board"), "cpu": facts.get("cpu"), "cores": facts.get("cores")}
        told |= {"memory_bytes": facts.get("memory_bytes"), "gpu": self._gpu(), "kernel": facts.get("kernel")}
        return {name: value for name, value in told.items() if value is not None}

    @property
    def software(self) -> Mapping[str, str]:
        """Python and torch on bare metal, as the first usable trial that says it."""
        record = self._first("inside")
        facts = flat(record.facts["inside"]) if record is not None else {}
        wanted = ("python.version", "torch.version", "torch.cuda")
        return {name: text(facts[name]) for name in wanted if facts.get(name) is not None}

    def _gpu(self) -> str | None:
        for record in self._usable():
            found = flat(record.facts.get("inside") or {}).get("torch.gpu.name")
            if found:
                return text(found)
        return None

    def _first(self, facts: str) -> Record | None:
        having = [record for record in self._usable() if record.facts.get(facts)]
        bare = [record for record in having if record.settings.get("platform") == "bare"]
        return next(iter(bare or having), None)

    def _usable(self) -> list[Record]:
        return [record for held in self.held for record in held.records if record.state in USABLE]


def machines(results: Path, studies: Mapping[str, Collection[str]]) -> list[Machine]:
    """Every machine that has results of anything, with its stores of these studies read, and these figures of each."""
    found: dict[str, list[Held]] = {}
    for name, path in _stores(results):
        held = found.setdefault(name, [])
        with Store.open(path) as store:
            study = str(store.study.get("study", "")) if isinstance(store.study, Mapping) else ""
            if study in studies:
                held.append(Held(f"{name}/{path.name}", study, _read(store, f"{name}/{path.name}", studies[study])))
    return [Machine(name, tuple(held)) for name, held in found.items()]


def _read(store: Store, name: str, figures: Collection[str]) -> Source:
    source = source_of(store, name)
    return replace(source, records=[with_figures(store, record, figures) for record in source.records])


def _stores(results: Path) -> list[tuple[str, Path]]:
    """Machine and place of every store and pack, sorted; those of a baseload go with the study's own."""
    whole = results.resolve()
    found = stores_in(whole)
    if found == [whole]:
        return [(whole.parent.name, whole)]
    kept = [path for path in found if not path.name.removesuffix(SUFFIX).endswith(_BASELOAD)]
    if not kept:
        raise StoreError(f"{results}: there are stores of baseloads alone in this folder; their studies lie elsewhere.")
    return [(_machine(path.relative_to(whole), whole.name), path) for path in kept]


def _machine(path: Path, folder: str) -> str:
    return path.parts[0] if len(path.parts) > 1 else folder
