"""Which part of a step holds most of a difference, and what a cold stall consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tare.analysis.cells import CACHE
from tare.analysis.model import Comparison, Estimate
from tare.analysis.numeric.medians import FLOOR, median_estimate, median_of
from tare.analysis.selection import MEAN_STEP, MEDIAN_STEP
from tare.base.declare import Group, Role, before
from tare.base.text import estimate_texts
from tare.records.model import Record

WHOLE = (MEAN_STEP, MEDIAN_STEP)
_MOST_OF_IT = 0.5


def where_it_lies(found: Comparison, ours: Sequence[Record], theirs: Sequence[Record]) -> str | None:
    """`96 % of what docker has more than bare is in the optimiser step`; None where no part holds most of it."""
    if found.metric not in WHOLE or found.verdict not in ("slower", "faster"):
        return None
    whole_s = _difference(found.metric, ours, theirs)
    if whole_s is None or whole_s[0] == 0:
        return None
    means = found.metric == MEAN_STEP
    shares = {
        part: (gap[0] / whole_s[0], gap)
        for part in _known(ours, theirs)
        if (gap := (_difference(_mean(part), ours, theirs) if means else None) or _difference(part, ours, theirs))
    }
    if not shares:
        return None
    part, (share, (_, before_s, after_s)) = max(shares.items(), key=lambda item: item[1][0])
    if share < _MOST_OF_IT:
        return None
    more = "more" if whole_s[0] > 0 else "less"
    return (
        f"{min(share, 1.0):.0%} of what {found.level!r} takes {more} than {found.against!r} is in "
        f"{before().metrics[part].spoken}: {before_s * 1e3:.3g} ms to {after_s * 1e3:.3g} ms."
    )


def _mean(part: str) -> str:
    """The mean of a part: a mean step is the sum of its parts' means."""
    return f"{part.removesuffix('_s')}_mean_s"


def _known(ours: Sequence[Record], theirs: Sequence[Record]) -> list[str]:
    """The parts that both sides have, none of which holds another."""
    parts = [name for name, each in before().metrics.items() if each.spoken]
    both = [part for part in parts if all(any(part in r.metrics for r in side) for side in (ours, theirs))]
    within_compute = {*Group.TRAINING_PARTS.metrics, Role.INFERENCE.metric}
    return [part for part in both if not (part == Role.COMPUTE.metric and within_compute.intersection(both))]


def _difference(metric: str, ours: Sequence[Record], theirs: Sequence[Record]) -> tuple[float, float, float] | None:
    """The median difference within blocks, and both medians; None where too few blocks hold both."""
    left = {record.block: record.metrics[metric] for record in ours if metric in record.metrics}
    right = {record.block: record.metrics[metric] for record in theirs if metric in record.metrics}
    blocks = sorted(left.keys() & right.keys())
    if len(blocks) < FLOOR:
        return None
    gaps = [left[block] - right[block] for block in blocks]
    medians = [median_of([side[block] for block in blocks]) for side in (right, left)]
    return median_of(gaps), medians[0], medians[1]


METRIC = Role.STALL_MEAN.metric  # a mean: what a stall costs a step, whether it comes in every step or in one of four
_SOURCE = "workload.source"
_KINDS = {("memory", "warm"): "synthetic", ("disk", "warm"): "cached", ("disk", "cold"): "cold"}


def stall_parts(records: Sequence[Record]) -> str | None:
    """Fetch = cold - cached, pre-process = cached - synthetic, paired by block; None where a kind is missing.

    Trials that differ in anything else are not of one anatomy, and then nothing is said.
    """
    if len({_rest(record.settings) for record in records}) != 1:
        return None
    stalls_s: dict[str, dict[int, float]] = {}
    for record in records:
        kind = _KINDS.get((str(record.settings.get(_SOURCE)), str(record.settings.get(CACHE))))
        if kind is not None and not record.twin and METRIC in record.metrics:
            stalls_s.setdefault(kind, {})[record.block] = record.metrics[METRIC]
    blocks = set.intersection(*(set(stalls_s.get(kind, {})) for kind in _KINDS.values()))
    if not blocks:
        return None
    synthetic, cached, cold = ([stalls_s[kind][block] for block in sorted(blocks)] for kind in _KINDS.values())
    fetch = median_estimate([a - b for a, b in zip(cold, cached, strict=True)])
    pre_process = median_estimate([a - b for a, b in zip(cached, synthetic, strict=True)])
    rest = median_estimate(synthetic)
    return (
        f"a cold stall consists of, per step: fetch {_told(fetch)} (cold - cached), pre-process {_told(pre_process)} "
        f"(cached - synthetic), collating and handing over {_told(rest)} (synthetic); n = {fetch.n} blocks."
    )


def _rest(settings: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in settings.items() if name not in (_SOURCE, CACHE)))


def _told(estimate: Estimate) -> str:
    return " ".join(filter(None, estimate_texts(METRIC, estimate.value, estimate.low, estimate.high)))
