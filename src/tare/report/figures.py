"""The figures of a report: those that the data supports, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tare.analysis.model import Weighing
from tare.records.model import Record
from tare.report.charts.bars import phases_figure, step_figure
from tare.report.charts.effects import effects_figure
from tare.report.charts.trials import trials_figure
from tare.report.charts.waterfall import why_figure
from tare.report.figure import Figure
from tare.report.shown import Shown


def figures(
    weighing: Weighing, shown: Sequence[Shown], level_hrefs: Mapping[str, str], records: Sequence[Record]
) -> list[Figure]:
    """Layers, effects, every trial, the parts of a step, the phases of a trial; `level_hrefs` is in order of levels."""
    margin = max((each.margin for each in weighing.comparisons), default=0.0)
    drawn = [
        why_figure(records, margin),
        effects_figure(weighing, level_hrefs),
        trials_figure(weighing, shown, list(level_hrefs)),
        step_figure(weighing, level_hrefs),
        phases_figure(weighing, level_hrefs),
    ]
    return [figure for figure in drawn if figure is not None]
