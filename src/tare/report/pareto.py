"""What `tare pareto` shows: the front as a table, how sure each place is, and what a default loses."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.configurations import setting_text
from tare.analysis.pareto import Default, Front, Point
from tare.report.columns import table, wrap
from tare.report.deciding import loss_text, sentences, shown_settings
from tare.report.words import metric_name, quantity_texts, safe_text, share_text

UNKNOWN = "unknown"


def fronts_text(fronts: Sequence[Front], width: int = 80) -> str:
    """Each group's front, one below the other."""
    return "\n\n".join(_front_text(front, width) for front in fronts)


def _front_text(front: Front, width: int) -> str:
    on_it = sum(point.on_front for point in front.points)
    title = f"{safe_text(front.group)}: " if front.group is not None else ""
    spoken = " and ".join(metric_name(figure) for figure in front.minimised)
    lines = wrap(f"{title}{on_it} of {front.configurations:,} configurations are on the {spoken} front", width)
    lines += [table(_rows(front), _headers(front), width)]
    lines += [line for default in front.defaults for line in _default_lines(default, width)]
    return "\n".join([*lines, *sentences((f"note: {note}" for note in front.notes), width)])


def _headers(front: Front) -> list[str]:
    return [*map(safe_text, _names(front)), *map(safe_text, front.minimised), "trials", "on the front"]


def _names(front: Front) -> list[str]:
    """Every setting that a point has; one that another lacks stays empty there."""
    return list(dict.fromkeys(name for point in front.points for name in point.settings))


def _rows(front: Front) -> list[list[str]]:
    columns = [quantity_texts(figure, [p.figures[figure].value for p in front.points]) for figure in front.minimised]
    rows = []
    for place, point in enumerate(front.points):
        settings = [setting_text(point.settings.get(name, "")) for name in _names(front)]
        rows.append([*settings, *(column[place] for column in columns), str(point.n), _standing(point)])
    return rows


def _standing(point: Point) -> str:
    now = "yes" if point.on_front else "no"
    return f"{now}, how sure is {UNKNOWN}" if point.front_share is None else f"{now}, {share_text(point.front_share)}"


def _default_lines(default: Default, width: int) -> list[str]:
    name = shown_settings(default.point.settings)
    sure = "" if default.dominated_share is None else f" (beaten in {share_text(default.dominated_share)} of resamples)"
    if default.dominated_by is None:
        return wrap(f"default {name}: on the front{sure}", width, indent="  ")
    lost = ", ".join(f"{loss_text(loss)} {metric_name(figure)}" for figure, loss in default.loss.items())
    other = shown_settings(default.dominated_by.settings)
    return wrap(f"default {name}: beaten by {other}{sure}; it takes {lost}", width, indent="  ")
