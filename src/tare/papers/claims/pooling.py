"""Stores in, evidence out: trials are pooled where device and software are the same, else kept apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare.analysis.baseload import records_of
from tare.analysis.cells import far_from_block
from tare.analysis.derived import with_figures
from tare.analysis.noise import LOOKING_ALPHA
from tare.analysis.nvm.stores import with_flush_latencies
from tare.analysis.observations import usable_attempts
from tare.analysis.statistics import ALPHA
from tare.analysis.variability import epoch_means
from tare.papers.claims import metrics
from tare.papers.claims.factors import cell_of, is_medium
from tare.papers.claims.model import ASSUMED, Population, device_facts, software
from tare.records.model import Record
from tare.records.store import Store
from tare.records.trials import (
    DEVICE,
    TYPE,
    StoreTrials,
    TrialRow,
    collected,
    device_of,
    grouped,
    has_most_of,
    is_usable,
    started_s,
    usable_trials,
    without_copies,
)

LATER_EPOCHS = 10  # after epoch 0: what varies little between three may vary a lot between ten
EPOCHS_OF = 24  # trials of a model on a device whose marks are read for their epochs: more would not change a word
SERIES_OF = 24  # blocks whose series are read: a report of a thousand trials must not wait for all of them
_FIGURES = ("step_s", "wall_s", "stall_mean_s", "compute_s", "energy_j")


@dataclass(frozen=True)
class DeviceTrials:
    """The trials of one device in one store, and everything that is known of its device and software."""

    name: str
    trials: tuple[TrialRow, ...]
    twins: tuple[TrialRow, ...]
    known: Mapping[str, frozenset[str]]
    baseline: Mapping[str, Any] | None
    looked: bool  # the study stops when its intervals are tight enough, so that it looked at them

    def agrees_with(self, other: DeviceTrials) -> bool:
        """Whether what is known of both is the same."""
        return all(self.known[key] == other.known[key] for key in self.known.keys() & other.known.keys())


def read_source(root: Path, name: str | None = None) -> StoreTrials:
    """A store: its records, and the epochs of some of its trials. Without a name it is called by its path."""
    with Store.open(root) as store:
        return source_of(store, str(root) if name is None else name)


def source_of(store: Store, name: str, figures: Collection[str] = ()) -> StoreTrials:
    """A store's records with the figures that claims need beside their own, and the epochs of some of its trials.

    `figures`: further ones, which every record gets.
    """
    records = _with_figures(store, _with_latencies(store, records_of(store)), figures)
    epochs = {each.trial: _epochs(store, each) for each in _spread(usable_attempts(records, _FIGURES))}
    study = store.study if isinstance(store.study, Mapping) else {}
    return StoreTrials(name, records, study, epochs, (*store.problems, *_unused(records)))


def _with_latencies(store: Store, records: Sequence[Record]) -> list[Record]:
    """With flush latencies; where they are simulated here, the record says that they rest on an assumption."""
    made = []
    for before, after in zip(records, with_flush_latencies(store, records), strict=True):
        figures = sorted(after.metrics.keys() - before.metrics.keys())
        made.append(replace(after, facts={**after.facts, ASSUMED: figures}) if figures else after)
    return made


def _with_figures(store: Store, records: Sequence[Record], figures: Collection[str]) -> list[Record]:
    """What is made of series and marks, beyond these only where a claim could use it: that takes reading them."""
    media = {value for record in records for name, value in cell_of(record) if is_medium(name)}
    wanted = [name for probe, names in _OF_PLATFORMS.items() if _on_platforms(records, probe) > 1 for name in names]
    wanted += metrics.EPOCH0 if len(media) > 1 else ()
    wanted += metrics.EPOCH_ENERGY if any(map(_has_energy_by_epoch, records)) else ()
    blocks = list(dict.fromkeys(record.block for record in records))[:SERIES_OF] if wanted else []
    both = {*figures, *wanted}
    return [with_figures(store, record, both if record.block in blocks else figures) for record in records]


def _has_energy_by_epoch(record: Record) -> bool:
    return (record.settings.get("workload.epochs") or 0) > LATER_EPOCHS and "energy_j" in record.metrics


# Probe -> what is made of it for claims that compare platforms.
_OF_PLATFORMS: Mapping[str, metrics.Names] = {
    "memory": metrics.MEMORY,
    "gpu": (*metrics.GPU_USE, *metrics.CPU_USE),
    "perf": (*metrics.PAGE_FAULTS, *metrics.INSERTED, *metrics.DAEMON_FAULTS, *metrics.DAEMON_CYCLES),
}


def _on_platforms(records: Sequence[Record], probe: str) -> int:
    """On how many platforms a probe ran; the use of the CPU is asked for where a GPU's is."""
    return len({record.settings.get("platform") for record in records if probe in metrics.probes_of(record)})


def _spread(records: Sequence[Record]) -> list[Record]:
    """Trials with enough epochs, some of each model on each device, spread over the store; none beside a tracer."""
    long = [each for each in records if (each.settings.get("workload.epochs") or 0) > LATER_EPOCHS and not each.traced]
    models = grouped(long, lambda each: (str(each.settings.get("workload.model")), device_of(each)))
    return [one for many in models.values() for one in many[:: max(1, -(-len(many) // EPOCHS_OF))]]


def _unused(records: Sequence[Record]) -> list[str]:
    every, usable = {each.trial for each in records}, {each.trial for each in records if is_usable(each)}
    if len(usable) == len(every):
        return []
    lost = len(every) - len(usable)
    said = f"{lost} of {len(every)} trials did not end well and {'is' if lost == 1 else 'are'} no evidence"
    return [f"{said}; see `tare show`."]


def _epochs(store: Store, record: Record) -> list[float]:
    return [value for _, value in epoch_means(store.marks(record.trial, record.attempt), "step")]


def _kept_epochs(source: StoreTrials, record: Record) -> tuple[float, ...]:
    return tuple(source.epochs.get(record.trial, ()))


def by_device(sources: Sequence[StoreTrials]) -> list[DeviceTrials]:
    """The devices of the stores, each by itself: two devices may have done the very same trial."""
    made = []
    for number, (source, fresh) in enumerate(
        zip(sources, without_copies(each.records for each in sources), strict=True)
    ):
        compared, repeat = source.study.get("compare"), source.study.get("repeat")
        looked = isinstance(repeat, Mapping) and repeat.get("until") is not None
        against = compared.get("against") if isinstance(compared, Mapping) else None
        baseline = against if isinstance(against, Mapping) else None
        rows = [
            replace(
                TrialRow.of(each, block_id=f"{number}/{each.block}", store=number, epochs=_kept_epochs(source, each)),
                # The device stands beside the settings of a fleet's trials: it is no cell of its own.
                settings={name: value for name, value in each.settings.items() if name not in (DEVICE, TYPE)},
            )
            for each in fresh
        ]
        for device, records in grouped(rows, lambda each: str(each.device)).items():
            trials = _together(usable_trials(records, has_most_of(_FIGURES), repeats=False))
            twins = tuple(usable_trials(each for each in records if each.twin))
            name = f"{source.name} ({device})" if source.name else device
            made.append(DeviceTrials(name, trials, twins, _known(trials), baseline, looked))
    return made


def _together(trials: Sequence[TrialRow]) -> tuple[TrialRow, ...]:
    """Without those that were run again far from the rest of their block: they are not of it any more."""
    times = [(trial.block_id, started_s(trial)) for trial in trials]
    known = [(block, time) for block, time in times if time is not None]
    if len(known) < len(times):
        return tuple(trials)
    return tuple(trial for trial, far in zip(trials, far_from_block(known), strict=True) if not far)


def populations(found: Sequence[DeviceTrials]) -> list[Population]:
    """Each device's trials join the first population that nothing of them contradicts."""
    pools: list[list[DeviceTrials]] = []
    for part in found:
        pool = next((pool for pool in pools if all(part.agrees_with(each) for each in pool)), None)
        if pool is None:
            pools.append([part])
        else:
            pool.append(part)
    return [population_of(pool) for pool in pools]


def population_of(parts: Sequence[DeviceTrials]) -> Population:
    """All of these as one population."""
    return Population(
        [trial for part in parts for trial in part.trials],
        [twin for part in parts for twin in part.twins],
        [part.baseline for part in parts if part.baseline is not None],
        ", ".join(part.name for part in parts),
        LOOKING_ALPHA if any(part.looked for part in parts) else ALPHA,
    )


def _known(trials: Sequence[TrialRow]) -> dict[str, frozenset[str]]:
    """Everything that is known of these trials' device, and of the software of each platform, with its values."""
    known: list[tuple[str, str]] = []
    for trial in trials:
        platform = str(trial.settings.get("platform"))
        known += device_facts(trial).items()
        known += ((f"{platform}: {key}", value) for key, value in software(trial).items())
    return {key: frozenset(values) for key, values in collected(known).items()}
