"""What a fetch stall is made of, by difference between three kinds of trial (docs/explanation/definitions.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tare.analysis.model import Estimate
from tare.analysis.stats import median_estimate
from tare.records.model import Record

METRIC = "stall_mean_s"  # a mean: what a stall costs a step, whether it comes in every step or in one of four
_SOURCE, _CACHE = "workload.source", "control.page_cache.state"
_KINDS = {("memory", "warm"): "synthetic", ("disk", "warm"): "cached", ("disk", "cold"): "cold"}


def stall_parts(records: Sequence[Record]) -> str | None:
    """Fetch = cold - cached, pre-process = cached - synthetic, paired by block; None where a kind is missing.

    Trials that differ in anything else are not of one anatomy, and then nothing is said.
    """
    if len({_rest(record.settings) for record in records}) != 1:
        return None
    stalls_s: dict[str, dict[int, float]] = {}
    for record in records:
        kind = _KINDS.get((str(record.settings.get(_SOURCE)), str(record.settings.get(_CACHE))))
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
        f"what a cold stall is made of, a step: fetch {_told(fetch)} (cold - cached), pre-process {_told(pre_process)} "
        f"(cached - synthetic), collating and handing over {_told(rest)} (synthetic); n = {fetch.n} blocks."
    )


def _rest(settings: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in settings.items() if name not in (_SOURCE, _CACHE)))


def _told(estimate: Estimate) -> str:
    spread = (
        ""
        if estimate.low is None or estimate.high is None
        else f" [{estimate.low * 1e3:.2f}, {estimate.high * 1e3:.2f}]"
    )
    return f"{estimate.value * 1e3:.2f}{spread} ms"
