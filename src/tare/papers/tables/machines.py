"""A folder of results: RESULTS/MACHINE/STUDY.tare, or the same as store folders; what each machine has.

A folder that holds a store itself is one machine with all that lies below it, named after the folder. Stores of a
baseload lie beside the study's own and are read with it. `not-run.json` beside a machine's stores says which studies
the machine refused, and why (see `refused`).

Studies that a machine refused: `not-run.json` beside its stores, {"study": [obstacle, ...]} as `--json` shows them.

A study that cannot be run leaves no store behind, and would look forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tare.analysis.labels import text
from tare.analysis.parity import flat
from tare.base import strict_json
from tare.base.errors import StoreError
from tare.base.rulings import Ruling, read_rulings
from tare.papers.claims.pooling import source_of
from tare.records.model import Record
from tare.records.pack import stores_in
from tare.records.store import Store
from tare.records.trials import StoreTrials, is_board, is_usable

Refused: TypeAlias = Mapping[str, tuple[Ruling, ...]]  # study -> the obstacles
NOT_RUN_FILE = "not-run.json"
_BASELOAD = "-baseload"  # how the name of what `tare device baseload` runs ends, and of two studies of the papers
_PROBE = "probe "  # how the subject of a probe's obstacle begins
_SHOWN = 3
_FORM = (
    'It is written {"s3-dvfs": ["this kernel sets no clocks."]}: a study, and what stood in its way, as sentences or '
    "as the `obstacles` of `tare check STUDY --json`"
)


def refused(folder: Path) -> dict[str, tuple[Ruling, ...]]:
    """What the file of a machine's folder says; nothing where there is none."""
    path = folder / NOT_RUN_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{path}: it cannot be read: {error.strerror}.") from None
    try:
        written = strict_json.load(data)
    except ValueError as error:
        raise StoreError(f"{path}: this is not JSON: {error}. {_FORM}.") from None
    if not isinstance(written, dict):
        raise StoreError(f"{path}: there is no object in it. {_FORM}.")
    return {study: _obstacles(path, study, said) for study, said in written.items()}


def _obstacles(path: Path, study: str, said: Any) -> tuple[Ruling, ...]:
    try:
        found = read_rulings(said, "obstacle") if isinstance(said, list) else ()
    except ValueError:
        found = ()
    if not found or not all(each.sentence.strip() for each in found):
        raise StoreError(f"{path}: {study!r} has no list of obstacles. {_FORM}.")
    return found


def cannot_be_run(study: str, obstacles: Sequence[Ruling]) -> str:
    """`s3-dvfs cannot be run there: control dvfs: this device has no clocks that could be fixed`.

    A probe that is missing is left out and stops no study, so it is told only where there is nothing else.
    """
    told = [each for each in obstacles if not each.subject.startswith(_PROBE)] or list(obstacles)
    more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return f"{study} cannot be run there: {'; '.join(str(each).strip().rstrip('.') for each in told[:_SHOWN])}{more}"


@dataclass(frozen=True)
class Machine:
    """What was kept of one machine."""

    name: str
    held: tuple[StoreTrials, ...]
    not_run: Refused = field(default_factory=dict)  # study -> what the machine said when it was asked to run it

    def of(self, study: str) -> list[StoreTrials]:
        return [each for each in self.held if each.study_name == study]

    def has_any(self, studies: Collection[str]) -> bool:
        """Whether it has run any of these studies, or refused it."""
        return any(each.study_name in studies for each in self.held) or any(study in studies for study in self.not_run)

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
        return [record for held in self.held for record in held.records if is_usable(record)]


def machines(results: Path, studies: Mapping[str, Collection[str]]) -> list[Machine]:
    """Every machine that has run any of these studies or refused it, with their stores read, and these figures."""
    found = []
    for name, (folder, places) in _by_machine(results, studies).items():
        read = (_held(path, shown, studies) for path, shown in places)
        held = tuple(each for each in read if each is not None)
        not_run = {study: why for study, why in refused(folder).items() if study in studies}
        if held or not_run:
            found.append(Machine(name, held, not_run))
    return found


def _held(path: Path, shown: str, studies: Mapping[str, Collection[str]]) -> StoreTrials | None:
    """A store of one of these studies, with the figures that are asked of it; None for any other."""
    if (study := _study_at(path)) not in studies:
        return None
    with Store.open(path) as store:
        return source_of(store, shown, studies[study])


def _study_at(path: Path) -> str:
    about = Store.header_at(path).study
    return str(about.get("study", "")) if isinstance(about, Mapping) else ""


Places: TypeAlias = list[tuple[Path, str]]  # each store, and what it is called


def _by_machine(results: Path, studies: Collection[str]) -> dict[str, tuple[Path, Places]]:
    """Machine -> its folder, and its stores and packs in order; those of a baseload go with the study's own."""
    whole = results.resolve()
    found = stores_in(whole)
    if found == [whole]:
        return {whole.parent.name: (whole.parent, [(whole, f"{whole.parent.name}/{whole.name}")])}
    kept = [path for path in found if (name := _study_at(path)) in studies or not name.endswith(_BASELOAD)]
    if not kept:
        raise StoreError(f"{results}: there are stores of baseloads alone in this folder; their studies lie elsewhere.")
    if any(path.parent == whole for path in kept):
        return {whole.name: (whole, [(path, f"{whole.name}/{path.relative_to(whole)}") for path in kept])}
    made: dict[str, tuple[Path, Places]] = {}
    for path in kept:
        below = path.relative_to(whole)
        made.setdefault(below.parts[0], (whole / below.parts[0], []))[1].append((path, str(below)))
    return made
