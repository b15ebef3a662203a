"""What shows a result: figures and tables of a report, and tables on a terminal."""

from __future__ import annotations

from tare.report.charts.bars import stacked
from tare.report.columns import sentences, table
from tare.report.evidence import ReportData
from tare.report.export import safe as markdown_text
from tare.report.export import table as markdown_table
from tare.report.figure import Cell, Figure, level_colour, part_colour, rows, shape_of
from tare.report.layout import (
    LANE,
    MOST_LANES,
    figures_above,
    label_above,
    legend,
    not_all_drawn,
    share_axis,
    some_of,
    tooltip,
)
from tare.report.text.why import layer_name
