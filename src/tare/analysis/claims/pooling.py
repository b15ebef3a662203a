"""Stores in, evidence out: trials are pooled where device and software are the same, else kept apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tare.analysis.beside.figures import with_figures
from tare.analysis.claims import metrics
from tare.analysis.claims.evidence import Evidence, Trial
from tare.analysis.claims.factors import cell_of, is_medium
from tare.analysis.claims.fingerprint import device_facts
from tare.analysis.claims.model import ASSUMED
from tare.analysis.devices import device_of
from tare.analysis.energy.baseload import records_of
from tare.analysis.flushing.stores import with_flush_latencies
from tare.analysis.observations import usable_attempts
from tare.analysis.stats import ALPHA
from tare.analysis.stopping import LOOKING_ALPHA
from tare.analysis.variability.samples import epoch_means
from tare.records.model import USABLE, Record
from tare.records.store import Store

LATER_EPOCHS = 10  # after epoch 0: what varies little between three may vary a lot between ten
EPOCHS_OF = 24  # trials of a model whose marks are read for their epochs: more would not change a word
SERIES_OF = 24  # blocks whose series are read: a report of a thousand trials must not wait for all of them
_FIGURES = ("step_s", "wall_s", "stall_mean_s", "compute_s", "energy_j")


@dataclass(frozen=True)
class Source:
    """What one store has."""

    name: str
    records: Sequence[Record]
    study: Mapping[str, Any] = field(default_factory=dict)
    epochs: Mapping[str, Sequence[float]] = field(default_factory=dict)  # trial -> mean step of each epoch
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """The trials of one device in one store, and everything that is known of its device and software."""

    name: str
    trials: tuple[Trial, ...]
    twins: tuple[Trial, ...]
    known: Mapping[str, frozenset[str]]
    baseline: Mapping[str, Any] | None
    looked: bool  # the study stops when its intervals are tight enough, so that it looked at them


@dataclass(frozen=True)
class Pool:
    """Parts whose device and software do not contradict each other."""

    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        return ", ".join(part.name for part in self.parts)

    def takes(self, part: Part) -> bool:
        """Whether what is known of both is the same."""
        return all(
            mine.known[key] == part.known[key] for mine in self.parts for key in mine.known.keys() & part.known.keys()
        )

    def evidence(self) -> Evidence:
        return Evidence(
            [trial for part in self.parts for trial in part.trials],
            [twin for part in self.parts for twin in part.twins],
            [part.baseline for part in self.parts if part.baseline is not None],
            LOOKING_ALPHA if any(part.looked for part in self.parts) else ALPHA,
        )


def read_source(root: Path) -> Source:
    """The store of this name: its records, and the epochs of some of its trials."""
    with Store.open(root) as store:
        return source_of(store, str(root))


def source_of(store: Store, name: str) -> Source:
    """A store's records with the figures that claims need beside their own, and the epochs of some of its trials."""
    records = _with_figures(store, _with_latencies(store, records_of(store)))
    epochs = {each.trial: _epochs(store, each) for each in _spread(usable_attempts(records, _FIGURES))}
    study = store.study if isinstance(store.study, Mapping) else {}
    return Source(name, records, study, epochs, (*store.problems, *_unused(records)))


def _with_latencies(store: Store, records: Sequence[Record]) -> list[Record]:
    """With flush latencies; where they are simulated here, the record says that they rest on an assumption."""
    made = []
    for before, after in zip(records, with_flush_latencies(store, records), strict=True):
        figures = sorted(after.metrics.keys() - before.metrics.keys())
        made.append(replace(after, facts={**after.facts, ASSUMED: figures}) if figures else after)
    return made


def _with_figures(store: Store, records: Sequence[Record]) -> list[Record]:
    """What is made of series and marks, only where a claim could use it: that takes reading them."""
    platforms = {record.settings.get("platform") for record in records if "memory" in metrics.probes_of(record)}
    media = {value for record in records for name, value in cell_of(record) if is_medium(name)}
    wanted = (*(metrics.MEMORY if len(platforms) > 1 else ()), *(metrics.EPOCH0 if len(media) > 1 else ()))
    blocks = list(dict.fromkeys(record.block for record in records))[:SERIES_OF] if wanted else []
    return [with_figures(store, record, wanted) if record.block in blocks else record for record in records]


def _spread(records: Sequence[Record]) -> list[Record]:
    """Trials with enough epochs, some of each model, spread over the store; beside a tracer times are not compared."""
    models: dict[str, list[Record]] = {}
    for record in records:
        if (record.settings.get("workload.epochs") or 0) > LATER_EPOCHS and not record.traced:
            models.setdefault(str(record.settings.get("workload.model")), []).append(record)
    return [one for many in models.values() for one in many[:: max(1, -(-len(many) // EPOCHS_OF))]]


def _unused(records: Sequence[Record]) -> list[str]:
    every, usable = {each.trial for each in records}, {each.trial for each in records if each.state in USABLE}
    if len(usable) == len(every):
        return []
    lost = len(every) - len(usable)
    said = f"{lost} of {len(every)} trials did not end well and {'is' if lost == 1 else 'are'} no evidence"
    return [f"{said}; see `tare show`."]


def _epochs(store: Store, record: Record) -> list[float]:
    return [value for _, value in epoch_means(store.marks(record.trial, record.attempt), "step")]


def parts(sources: Sequence[Source]) -> list[Part]:
    """The devices of the stores, each by itself: two devices may have done the very same trial."""
    made = []
    seen: set[tuple[object, ...]] = set()
    for number, source in enumerate(sources):
        compared, repeat = source.study.get("compare"), source.study.get("repeat")
        looked = isinstance(repeat, Mapping) and repeat.get("until") is not None
        against = compared.get("against") if isinstance(compared, Mapping) else None
        for device, records in _by_device(_once(source.records, seen)).items():
            usable = usable_attempts(records, _FIGURES)
            trials = tuple(Trial.of(each, number, source.epochs.get(each.trial, ())) for each in usable)
            twins = tuple(Trial.of(each, number) for each in records if each.twin and each.state in USABLE)
            baseline = against if isinstance(against, Mapping) else None
            made.append(Part(f"{source.name} ({device})", trials, twins, _known(trials), baseline, looked))
    return made


def pools(found: Sequence[Part]) -> list[Pool]:
    """The populations: each part joins the first pool that nothing of it contradicts."""
    made: list[Pool] = []
    for part in found:
        place = next((place for place, pool in enumerate(made) if pool.takes(part)), None)
        if place is None:
            made.append(Pool((part,)))
        else:
            made[place] = Pool((*made[place].parts, part))
    return made


def _once(records: Sequence[Record], seen: set[tuple[object, ...]]) -> list[Record]:
    """Without attempts that another store has already: a copy of a store is no further evidence."""
    keys = [(each.trial, each.attempt, each.started_utc, each.start_ns) for each in records]
    fresh = [each for each, key in zip(records, keys, strict=True) if not each.started_utc or key not in seen]
    seen.update(keys)
    return fresh


def _by_device(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(str(device_of(record)), []).append(record)
    return found


def _known(trials: Sequence[Trial]) -> dict[str, frozenset[str]]:
    """Everything that is known of these trials' device, and of the software of each platform, with its values."""
    known: dict[str, set[str]] = {}
    for trial in trials:
        platform = str(trial.record.settings.get("platform"))
        for key, value in device_facts(trial.record).items():
            known.setdefault(key, set()).add(value)
        for key, value in trial.software.items():
            known.setdefault(f"{platform}: {key}", set()).add(value)
    return {key: frozenset(values) for key, values in known.items()}
