"""What compute is made of (forward, backward, optimiser step), and a request (pre-process, inference, post-process)."""

from __future__ import annotations

from collections.abc import Mapping

from tare.analysis.model import Weighing
from tare.report.charts.bars import bars_figure, metric_parts, shares_told
from tare.report.figure import Figure
from tare.report.words import metric_name

# Name, title, and the parts in their order.
KINDS = (
    ("training-parts", "Forward, backward and optimiser step", ("forward_s", "backward_s", "optimiser_s")),
    ("request-parts", "Pre-process, inference and post-process", ("pre_process_s", "inference_s", "post_process_s")),
)


def compute_figures(weighing: Weighing, level_hrefs: Mapping[str, str]) -> list[Figure]:
    """One for each kind whose parts were marked (`phases: true`, or an application)."""
    found = []
    for name, title, metrics in KINDS:
        parts = metric_parts(weighing, level_hrefs, metrics)
        names = {metric: metric_name(metric) for metric in metrics}
        reading = f"Medians of the trials, as shares of the three. {shares_told(weighing, parts, names)}."
        found.append(bars_figure(name, title, reading, weighing, parts, names, level_hrefs))
    return [figure for figure in found if figure is not None]
