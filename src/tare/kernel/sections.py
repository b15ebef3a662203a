"""The figures of a report that show what the kernel did."""

from __future__ import annotations

from tare.ext.report import Figure, ReportData
from tare.kernel.model import traced_trials


def traced_figures(evidence: ReportData) -> list[Figure]:
    """None without a store, or where no trial of it was traced."""
    store = evidence.store
    trials = traced_trials(store) if store is not None else []
    if store is None or not trials:
        return []
    from tare.kernel import charts  # brings what reads traces: not for a store without them

    hrefs = charts.hrefs_of(trials, evidence.level_hrefs, {each.trial: each.level for each in evidence.shown})
    found = [
        charts.counters_figure(trials, hrefs),
        charts.faults_figure(trials, hrefs),
        charts.reasons_figure(trials, hrefs),
        charts.intervals_figure(trials, hrefs, evidence.numbers),
        charts.hot_pages_figure(trials),
        charts.layer_figure(store),
    ]
    return [figure for figure in found if figure is not None]
