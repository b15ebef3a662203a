"""What `tare analyse pipeline` shows: each pipeline by number of workers, what binds it, and what hides the stall."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tare.analysis.model import Comparison, Estimate
from tare.analysis.resources.bottlenecks import ADVICE
from tare.analysis.resources.pipeline import Anatomy, Part, Pipeline
from tare.analysis.sentences import effect_of, interval_of, verdict_phrase
from tare.analysis.tenants import Sharing
from tare.analysis.variability import Plan, Variability
from tare.base.text import (
    count_text,
    duration_text,
    effect_text,
    metric_name,
    quantity_texts,
    safe_text,
    share_text,
    time_text,
)
from tare.report.columns import table, wrap
from tare.report.text.choose import loss_text, sentences
from tare.report.text.verdict import medians_of

BINDS = {
    "disk": "disk", "cpu": "CPU", "input": "input", "compute": "compute", "gpu": "GPU", "copy": "copies",
    "launch": "launches", "sync": "waiting calls",
}  # fmt: skip
HIDDEN = {"hidden": "yes", "not hidden": "no"}  # else the median alone speaks
HEADERS = ("workers", "trials", "step", "stall", "predicted", "of step", "hidden", "binds")


def anatomy_text(found: Anatomy, width: int = 80) -> str:
    """Every pipeline, then the media, then what there is to doubt."""
    blocks = ["\n".join(_pipeline(each, found.share, width)) for each in found.pipelines]
    media = sentences((line for line in _media(found)), width)
    notes = sentences((f"note: {note}" for note in found.notes), width)
    return "\n\n".join([*blocks, *(["\n".join([*media, *notes])] if media or notes else [])])


def _pipeline(each: Pipeline, share: float, width: int) -> list[str]:
    lines = wrap(safe_text(_title(each)), width)
    stalls = quantity_texts("stall_s", [part.stall_s.value for part in each.parts])
    steps = quantity_texts("step_s", [part.step_s.value for part in each.parts])
    rows = [_row(part, *texts) for part, *texts in zip(each.parts, steps, stalls, strict=True)]
    lines.append(table(rows, HEADERS, width))
    return lines + sentences([_fetch(each), _workers(each, share), *_changes(each)], width)


def _changes(each: Pipeline) -> list[str]:
    """What to change where it is the GPU that something waits for, or that waits."""
    found = dict.fromkeys(part.binds for part in each.parts)
    return [f"{BINDS[word]}: {ADVICE[word]}" for word in found if word in ADVICE]


def _title(each: Pipeline) -> str:
    named = [each.cell, each.medium and f"on {each.medium}", each.cache and f"cache {each.cache}"]
    return ", ".join(part for part in named if part) or "the pipeline"


def _row(part: Part, step: str, stall: str) -> list[str]:
    predicted = "" if part.predicted_stall_s is None else time_text(part.predicted_stall_s)
    word = HIDDEN.get(part.hidden) or ("perhaps" if part.by_median else "perhaps not")
    return [
        f"{part.workers:g}",
        str(part.n),
        step,
        stall,
        predicted,
        share_text(part.stall_share.value),
        word,
        BINDS[part.binds],
    ]


def _fetch(each: Pipeline) -> str:
    if each.fetch_s is None:
        return "fetch and pre-process: not measured (no trial at 0 workers)"
    disk = "" if each.disk_s is None else f", of which the disk takes {_least(each)}{time_text(each.disk_s)}"
    return f"fetch and pre-process of a step: {time_text(each.fetch_s.value)}{disk}"


def _least(each: Pipeline) -> str:
    return "at least " if each.disk_at_least else ""


def _workers(each: Pipeline, share: float) -> str:
    predicted = _number(each.workers_predicted)
    measured = "none of those measured" if each.workers_measured is None else f"{each.workers_measured:g}"
    by_median = "none" if each.workers_by_median is None else f"{each.workers_by_median:g}"
    return (
        f"fewest workers that hide the stall (below {share_text(share)} of the step): predicted {predicted}, "
        f"measured {by_median} by the median, surely {measured}"
    )


def _number(estimate: Estimate | None) -> str:
    if estimate is None:
        return "unknown"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:g}"
    return f"{estimate.value:g} [{estimate.low:g}, {estimate.high:g}]"


def _media(found: Anatomy) -> list[str]:
    lines = []
    for each in found.media:
        where = ", ".join(part for part in (each.cell, each.cache and f"cache {each.cache}") if part)
        lines.append(
            f"{where + ', ' if where else ''}{each.workers:g} workers: slowest medium that hides the stall: predicted "
            f"{each.slowest_predicted or 'none'}, measured {each.slowest_by_median or 'none'} by the median, "
            f"surely {each.slowest_measured or 'none'}"
        )
    return lines


def variability_text(found: Variability, width: int = 80) -> str:
    """The whole answer for a terminal of `width` columns."""
    over = "" if found.cells == 1 else f" of {found.cells} configurations, each against its own mean"
    lines = wrap(f"{metric_name(found.figure)}: {count_text(found.samples, 'value')}{over}", width)
    lines.append(
        table(
            [_variability_row(each) for each in _components(found)],
            ["varies", "groups", "deviation", "of the variance"],
            width,
        )
    )
    lines += sentences(_drifts(found), width)
    lines += sentences(
        (f"farthest {each.what}: {effect_text(each.deviation)} ({each.where})" for each in found.worst), width
    )
    lines += _enough(found, width)
    return "\n".join([*lines, *sentences((f"note: {note}" for note in found.notes), width)])


def _components(found: Variability) -> list[tuple[str, Estimate, float | None]]:
    return [(each.level, each.deviation, each.share) for each in found.components]


def _variability_row(component: tuple[str, Estimate, float | None]) -> list[str]:
    level, deviation, share = component
    told = share_text(deviation.value)
    if deviation.low is not None and deviation.high is not None:
        told += f" [{share_text(deviation.low)}, {share_text(deviation.high)}]"
    return [level, f"{deviation.n:,}", told, "none" if share is None else f"{share:.0%}".replace("%", " %")]


def _drifts(found: Variability) -> list[str]:
    named = (
        ("first epoch against the others, kept apart", found.first_epoch),
        ("drift from a trial's first epoch to its last", found.drift_in_trial),
        ("drift from the first trial to the last", found.drift_in_study),
    )
    return [f"{name}: {loss_text(estimate)}" for name, estimate in named if estimate is not None]


def _enough(found: Variability, width: int) -> list[str]:
    if found.cheapest is None:
        return []
    target = share_text(found.target)
    lines = wrap(f"enough for a mean known to ±{target}, with 95 % confidence:", width)
    rows = [
        [f"{count_text(plan.trials, 'trial')}{_each(found, plan)}", f"±{share_text(plan.half_width)}",
         f"fewest {_part(found)}s in all" if plan == found.cheapest and len(found.plans) > 1 else ""]
        for plan in found.plans
    ]  # fmt: skip
    return [*lines, table(rows, (), width, indent="  ")]


def _each(found: Variability, plan: Plan) -> str:
    """What each trial of a plan has, where trials have parts."""
    return f" of {count_text(plan.epochs, _part(found))}" if found.components[-1].level != "between trials" else ""


def _part(found: Variability) -> str:
    return "epoch" if found.components[-1].level == "between epochs" else "value"


_HEADS = ("tenants", "who", "alone", "shared", "slowdown", "95 % interval", "verdict")


def sharing_text(found: Sequence[Sharing], width: int) -> str:
    """One line a tenant, then how fairly the device was shared."""
    rows = [_tenants_row(one, each) for one in found for each in one.slowdowns]
    lines = [table(rows, _HEADS, width)] if rows else []
    for sentence in (sentence for one in found for sentence in _sentences(one)):
        lines += wrap(sentence, width, indent="  ")
    return "\n".join(lines)


def _tenants_row(one: Sharing, found: Comparison) -> tuple[str, ...]:
    alone, shared = medians_of(found)
    return _level(one), found.level, alone, shared, effect_of(found), interval_of(found), verdict_phrase(found)


def _level(one: Sharing) -> str:
    return f"{one.tenants} ({one.where})" if one.where else one.tenants


def _sentences(one: Sharing) -> Iterator[str]:
    if not one.slowdowns:
        yield f"{_level(one)}: no usable trial of one tenant alone to compare with."
    if one.fairness is not None:
        yield f"{_level(one)}: fairness {one.fairness.value:.3f} (Jain's index of the speeds; 1 is equal shares)."
    if one.overlap_s is not None:
        yield f"{_level(one)}: all worked at the same time for {duration_text(one.overlap_s.value)} of a trial."
