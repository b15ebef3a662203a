"""What `tare anatomy` shows: each pipeline by number of workers, what binds it, and what hides the stall."""

from __future__ import annotations

from tare.analysis.anatomy import Anatomy, Part, Pipeline
from tare.analysis.model import Estimate
from tare.report.columns import table, wrap
from tare.report.deciding import sentences
from tare.report.words import quantity_texts, safe_text, share_text, time_text

BINDS = {"disk": "disk", "cpu": "CPU", "input": "input", "compute": "compute"}
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
    return lines + sentences([_fetch(each), _workers(each, share)], width)


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
