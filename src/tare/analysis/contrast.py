"""What a store's sides differ by: every level against the baseline, computed in one place for all that shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tare.analysis.compare import Contest, judge
from tare.analysis.model import Comparison
from tare.analysis.outside import Pair, contradicted, of_whole_runs
from tare.analysis.parity import INFERENCE
from tare.analysis.selection import (
    FIRST_TOKEN,
    GOAL_RATE,
    GOODPUT,
    SHORT_TAIL,
    START_UP,
    TAIL,
    Request,
    Selection,
    select,
    why_not,
)
from tare.analysis.work import Work, like_work
from tare.base.declare import Group, Role
from tare.base.rulings import Ruling
from tare.records.model import TYPE, Record


@dataclass(frozen=True)
class Contrasts:
    """Every level against the baseline: on the headline, on what else is tested, and what the outside time refuses."""

    selected: Selection
    work: Work
    headline: tuple[Comparison, ...]
    further: tuple[Comparison, ...]
    refused: Mapping[Pair, Ruling]


def contrasts(records: Sequence[Record], asked: Request) -> Contrasts:
    """The one place where the effect of a store's metric is computed."""
    selected, work = like_work(select(records, asked))
    headline, further = _tested(selected, work)
    refused = contradicted(selected, headline)
    if refused and len(refused) == len(headline) and asked.metric is None:
        selected = of_whole_runs(selected)
        headline, further = _tested(selected, work)
    return Contrasts(selected, work, headline, further, refused)


def tested_family(selected: Selection, work: Work) -> list[Contest]:
    """Every level on the headline and, unless one metric was named, on the tail of requests and the start-up.

    One family: the claims hold together. A line that a side lacks is left out, and one of unlike steps.
    """
    family = [replace(each, metric=selected.metric) for each in selected.family()]
    for metric in _further(selected):
        if work.hides(metric):
            continue
        used = [record for record in selected.used if not why_not(record, metric)]
        made = [each for each in selected.family(metric, used) if each.ours and each.theirs]
        family += [replace(each, metric=metric, notes=()) for each in made]
    return family


def _tested(selected: Selection, work: Work) -> tuple[tuple[Comparison, ...], tuple[Comparison, ...]]:
    """One family of comparisons: those on the headline, and those on what else is tested."""
    asked = selected.request
    family = judge(
        tested_family(selected, work), margin=asked.margin, metric=selected.metric, alpha=asked.alpha,
        rises=asked.rises,
    )  # fmt: skip
    headline = tuple(each for each in family if each.metric == selected.metric)
    return headline, tuple(each for each in family if each.metric != selected.metric)


def _further(selected: Selection) -> list[str]:
    if selected.request.metric is not None or selected.label.by == TYPE:
        return []
    infers = all(record.settings.get("workload") in INFERENCE for record in selected.used)
    serves = [name for name in (FIRST_TOKEN, GOODPUT) if infers and _all_have(selected, name)]
    few = (serves or selected.metric == GOAL_RATE) and not _all_have(selected, TAIL)  # some hundreds have no p99
    tail = SHORT_TAIL if few else TAIL
    alone = not any(record.facts.get("turns", {}).get("together") for record in selected.used)
    return [*([tail] if infers else []), *serves, *([START_UP] if alone else []), *of_processors(selected)]


def of_processors(selected: Selection) -> list[str]:
    """CPU time, and the time of a GPU's kernels, where the study asks for them: per step if every trial has that."""
    if not selected.request.cpu_time:
        return []
    kinds = (Group.CPU_TIME.metrics, (Role.GPU_STEP.metric,))
    found = [next((name for name in kind if _all_have(selected, name)), None) for kind in kinds]
    return [name for name in found if name is not None and name != selected.metric]


def _all_have(selected: Selection, metric: str) -> bool:
    return bool(selected.used) and all(metric in record.metrics for record in selected.used)
