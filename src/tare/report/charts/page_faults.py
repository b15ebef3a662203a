"""Page faults by cause, of the workload, the engine's daemons and others apart (the paper's Table 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tare.analysis.kernel import faults
from tare.analysis.kernel.model import Section, Traced
from tare.report.charts.bars import stacked
from tare.report.charts.kernel_tables import table_of, with_notes
from tare.report.charts.naming import MOST_LANES, some_of
from tare.report.figure import Figure
from tare.report.kernel import number_text
from tare.report.words import safe_text, share_text

COUNT = "faults"  # a plain number
_BEFORE, _AFTER = 3, 1  # columns of the section around those of the causes: where, role, stage; the sum


def faults_figure(trials: Sequence[Traced], hrefs: Mapping[str, str]) -> Figure | None:
    """A lane for each cell and role, its faults by cause; None where none were traced."""
    section = faults.causes(trials)
    parts = _parts(section) if section is not None else {}
    if section is None or not parts:
        return None
    causes = [column.title for column in section.columns[_BEFORE:-_AFTER]]
    names = {cause: safe_text(cause) for cause in causes if any(cause in known for known in parts.values())}
    told = [f"{lane} {number_text(sum(known.values()))} ({_most(known)})" for lane, known in parts.items()]
    headers, body = table_of(section, hrefs)
    reading = with_notes(f"Page faults of a run, medians over trials: {some_of(told)}.", section)
    chart = stacked(dict(list(parts.items())[:MOST_LANES]), names, COUNT)
    return Figure("page-faults", section.title, reading, chart, headers, body)


def _parts(section: Section) -> dict[str, dict[str, float]]:
    """`docker, workload` -> cause -> faults, over the stages of the run; what had none is absent."""
    found: dict[str, dict[str, float]] = {}
    causes = [column.title for column in section.columns[_BEFORE:-_AFTER]]
    for row in section.rows:
        sums = found.setdefault(safe_text(f"{row[0]}, {row[1]}"), {})
        for cause, count in zip(causes, row[_BEFORE:-_AFTER], strict=True):
            if isinstance(count, int | float) and count:
                sums[cause] = sums.get(cause, 0.0) + count
    return {lane: known for lane, known in found.items() if known}


def _most(known: Mapping[str, float]) -> str:
    cause, count = max(known.items(), key=lambda item: item[1])
    return f"{share_text(count / sum(known.values()))} {safe_text(cause)}"
