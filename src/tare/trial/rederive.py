"""A sealed trial's figures made again from its marks, readings and trace tables, by the functions that made them.

What is not a figure, or has nothing beneath it, is taken as it was recorded: docs/how-to/verify-results.md lists it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from tare.records.model import Record
from tare.records.parquet import read_distributions
from tare.records.schema import READINGS_FILE, TRIALS_FOLDER
from tare.records.sealed import folder_name
from tare.records.store import Store
from tare.trial.energy import energy_of_trial
from tare.trial.figures import figures, said_figures
from tare.trial.sealed_evidence import SealedEvidence, evidence_of
from tare.trial.summary import COUNTED, steps_from
from tare.trial.thresholds import THRESHOLDS

RELATIVE = 1e-9  # another processor adds up in another order
SIX_DIGITS = 1.01e-5  # of a quantile (`records.parquet.distributions`): a unit of the last of them, at most
ABSOLUTE = 1e-12  # of what is left over when nearly equal times are subtracted; clocks tell nanoseconds

_OF_ENERGY = ("energy_", "power_mean_w")
_NOT_KEPT = "an older tare did not keep the launcher's words"
_OTHER_LIMITS = "whether energy may be claimed was decided with the limits of another tare"


@dataclass(frozen=True)
class Difference:
    """One figure that is not what the raw data give; None: it is not there."""

    figure: str
    stored: float | None
    derived: float | None

    def __str__(self) -> str:
        if self.derived is None:
            return f"{self.figure}: stored {self.stored!r}, and nothing that was sealed gives it"
        if self.stored is None:
            return f"{self.figure}: not stored, derived {self.derived!r}"
        return f"{self.figure}: stored {self.stored!r}, derived {self.derived!r}"


@dataclass(frozen=True)
class Rederived:
    """What came of one trial."""

    trial: str
    attempt: int
    derived: int = 0  # figures that the raw data give as they were stored
    said: int = 0  # figures that are what the launcher or the program said, kept beside them in the record
    taken: Mapping[str, str] = field(default_factory=dict)  # figures that nothing sealed gives: name -> why
    differences: tuple[Difference, ...] = ()


def rederive(store: Store, record: Record) -> Rederived:
    """Every figure of the trial again: its metrics, its energy's numbers, and the distributions of its channels."""
    evidence = evidence_of(store, record)
    steps = steps_from(evidence.marks)
    energy = energy_of_trial(record.settings, evidence, steps)
    found = _finite(figures(evidence, steps, energy))
    said = said_figures(evidence).keys() & record.metrics.keys()
    taken = _taken(record, found, evidence)
    kept = {name: value for name, value in record.metrics.items() if name not in taken}
    found = {name: value for name, value in found.items() if name not in taken}
    pairs = [*_pairs(kept, found)]
    if energy is not None:
        # Sentences and names are not figures, and an older tare may have called them otherwise.
        stored, again = (dict(_numbers(facts, "energy")) for facts in (record.facts.get("energy", {}), energy.facts))
        pairs += [(name, stored[name], again[name]) for name in stored if name in again]
    pairs += _of_channels(store, record)
    differences = tuple(Difference(*pair) for pair in pairs if not _same(pair[1], pair[2]))
    unequal = {each.figure for each in differences}
    return Rederived(
        record.trial,
        record.attempt,
        derived=len(pairs) - len(differences) - len(said - taken.keys() - unequal),
        said=len(said - taken.keys() - unequal),
        taken=taken,
        differences=differences,
    )


def _taken(record: Record, found: Mapping[str, float], evidence: SealedEvidence) -> dict[str, str]:
    """Figures that cannot be made again, each with the reason; what is left must be equal."""
    one_sided = record.metrics.keys() ^ found.keys()
    taken: dict[str, str] = {}
    if "place" in record.facts and "counted" not in record.facts:
        names = record.metrics.keys() if evidence.neighbours else (*COUNTED, "cpu_s")
        taken |= {name: _NOT_KEPT for name in names if name in one_sided and name in record.metrics}
    if record.facts.get("thresholds", {}) != THRESHOLDS.as_json():
        taken |= {name: _OTHER_LIMITS for name in one_sided if name.startswith(_OF_ENERGY)}
    if evidence.untraced:
        taken |= {name: evidence.untraced for name in one_sided if name in record.metrics and name not in taken}
    return taken


def _pairs(stored: Mapping[str, float], derived: Mapping[str, float]) -> Iterator[tuple[str, Any, Any]]:
    for name in dict.fromkeys([*stored, *derived]):
        yield name, stored.get(name), derived.get(name)


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Every number in plain data, under its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, f"{path}.{key}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def _of_channels(store: Store, record: Record) -> Iterator[tuple[str, Any, Any]]:
    """How many readings each channel has, and their quantiles; of a store of before these were kept, nothing."""
    channels = store.channels(record.trial, record.attempt)
    if not any("count" in channel for channel in channels):
        return
    counters = [place for place, channel in enumerate(channels) if channel["kind"] == "counter"]
    path = store.root / TRIALS_FOLDER / folder_name(record.trial, record.attempt) / READINGS_FILE
    again = read_distributions(path, [channel["name"] for channel in channels], counters)
    for number, channel in enumerate(channels):
        count, quantiles = again.get(number, (None, []))
        yield f"{channel['name']}.count", channel.get("count"), count
        yield _quantiles(channel["name"], channel.get("quantiles", []), quantiles)


def _quantiles(name: str, stored: Sequence[float], derived: Sequence[float]) -> tuple[str, Any, Any]:
    """They are one figure: the first of them that differs stands for all."""
    for place, pair in enumerate(zip_longest(stored, derived)):
        if not _same(*pair, relative=SIX_DIGITS):
            return (f"{name}.quantile[{place}]", *pair)
    return f"{name}.quantiles", len(stored), len(derived)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """As a record keeps them: what is no number is absent."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _same(stored: Any, derived: Any, relative: float = RELATIVE) -> bool:
    if stored is None or derived is None:
        return stored is derived
    return math.isclose(stored, derived, rel_tol=relative, abs_tol=ABSOLUTE)
