"""A folder of results: RESULTS/MACHINE/STUDY.tare, or the same as store folders; what each machine has.

A folder that holds a store itself is one machine with all that lies below it, named after the folder. Stores of a
baseload lie beside the study's own and are read with it. `not-run.json` beside a machine's stores says which studies
the machine refused, and why (see `refused`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from tare.analysis.beside.figures import with_figures
from tare.analysis.cells import text
from tare.analysis.claims.pooling import Source, source_of
from tare.analysis.devices import is_board
from tare.analysis.papers.refused import Refused, refused
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
    not_run: Refused = field(default_factory=dict)  # study -> what the machine said when it was asked to run it

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
    def is_board(self) -> bool:
        """Whether the device says which board it is; a server says nothing, a virtual machine that it is one."""
        return is_board(text(self.device.get("board", "")))

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
    """Every machine that has run any of these studies or refused it, with their stores read, and these figures."""
    found = []
    for name, (folder, places) in _by_machine(results).items():
        read = (_held(path, shown, studies) for path, shown in places)
        held = tuple(each for each in read if each is not None)
        not_run = {study: why for study, why in refused(folder).items() if study in studies}
        if held or not_run:
            found.append(Machine(name, held, not_run))
    return found


def _held(path: Path, shown: str, studies: Mapping[str, Collection[str]]) -> Held | None:
    """A store of one of these studies; None for any other."""
    with Store.open(path) as store:
        study = str(store.study.get("study", "")) if isinstance(store.study, Mapping) else ""
        return Held(shown, study, _read(store, shown, studies[study])) if study in studies else None


def _read(store: Store, name: str, figures: Collection[str]) -> Source:
    source = source_of(store, name)
    return replace(source, records=[with_figures(store, record, figures) for record in source.records])


Places: TypeAlias = list[tuple[Path, str]]  # each store, and what it is called


def _by_machine(results: Path) -> dict[str, tuple[Path, Places]]:
    """Machine -> its folder, and its stores and packs in order; those of a baseload go with the study's own."""
    whole = results.resolve()
    found = stores_in(whole)
    if found == [whole]:
        return {whole.parent.name: (whole.parent, [(whole, f"{whole.parent.name}/{whole.name}")])}
    kept = [path for path in found if not path.name.removesuffix(SUFFIX).endswith(_BASELOAD)]
    if not kept:
        raise StoreError(f"{results}: there are stores of baseloads alone in this folder; their studies lie elsewhere.")
    if any(path.parent == whole for path in kept):
        return {whole.name: (whole, [(path, f"{whole.name}/{path.relative_to(whole)}") for path in kept])}
    made: dict[str, tuple[Path, Places]] = {}
    for path in kept:
        below = path.relative_to(whole)
        made.setdefault(below.parts[0], (whole / below.parts[0], []))[1].append((path, str(below)))
    return made
