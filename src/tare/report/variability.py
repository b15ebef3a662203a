"""What `tare variability` shows: where the variation comes from, drift, the worst, and what is enough."""

from __future__ import annotations

from tare.analysis.model import Estimate
from tare.analysis.variability import Plan, Variability
from tare.report.columns import table, wrap
from tare.report.deciding import loss_text, sentences
from tare.report.words import count_text, effect_text, metric_name, share_text


def variability_text(found: Variability, width: int = 80) -> str:
    """The whole answer for a terminal of `width` columns."""
    over = "" if found.cells == 1 else f" of {found.cells} configurations, each against its own mean"
    lines = wrap(f"{metric_name(found.figure)}: {count_text(found.samples, 'value')}{over}", width)
    lines.append(
        table([_row(each) for each in _components(found)], ["varies", "groups", "deviation", "of the variance"], width)
    )
    lines += sentences(_drifts(found), width)
    lines += sentences(
        (f"farthest {each.what}: {effect_text(each.deviation)} ({each.where})" for each in found.worst), width
    )
    lines += _enough(found, width)
    return "\n".join([*lines, *sentences((f"note: {note}" for note in found.notes), width)])


def _components(found: Variability) -> list[tuple[str, Estimate, float | None]]:
    return [(each.level, each.deviation, each.share) for each in found.components]


def _row(component: tuple[str, Estimate, float | None]) -> list[str]:
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
