"""What shows a result: figures and tables of a report, and tables on a terminal."""

from __future__ import annotations

from tare.analysis.sections import stack_chart
from tare.report.charts.forms import chart_spec
from tare.report.columns import sentences, table
from tare.report.evidence import ReportData
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
from tare.report.sections import markdown_safe as markdown_text
from tare.report.sections import markdown_table
from tare.report.text.why import layer_name
