"""The kernel's view of traced trials as figures: counters, page faults, write-backs, pages, and the flushing layer.

A section's rows are its table, whoever draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tare.base.errors import TareError
from tare.base.text import safe_text, share_text, time_text
from tare.ext.analysis import Store, grouped
from tare.ext.report import (
    LANE,
    MOST_LANES,
    Cell,
    Figure,
    chart_spec,
    figures_above,
    label_above,
    legend,
    level_colour,
    not_all_drawn,
    part_colour,
    rows,
    shape_of,
    some_of,
    stack_chart,
    tooltip,
)
from tare.kernel import counters, writebacks
from tare.kernel.model import WORDS, Section, TrialTraces, by_label, traced_trials
from tare.kernel.nvm.model import POLICIES, Layer, Run
from tare.kernel.nvm.replay import Simulation, simulate
from tare.kernel.nvm.sources import HIGH, LOW, bands, capacity, store_traces
from tare.kernel.text import buffer_text, cell_text, number_text
from tare.kernel.writebacks import scatters

NARROWEST = 1.05  # the axis of ratios shows at least this far both ways
# Columns of the counters, and what they are in the chart.
ROLES = {"workload": "process", "daemon": "daemons", "host_process": "host process"}
CURVES, CURVE_POINTS = 7, 300  # of intervals between write-backs
SHORTEST_S = 1e-4  # on a logarithmic axis what is shorter stands here
SIZES = tuple(2**power for power in range(18, 31))  # of the flushing layer's buffer: 256 KiB to 1 GiB
MOST_WRITES = 30_000_000  # over all sizes: a few seconds
_BEFORE, _AFTER = 3, 1  # columns of the section of faults around those of the causes: where, role, stage; the sum
_PAPERS = "the paper's eight cases"
_BAND = {"low": 1 - HIGH, "high": 1 - LOW}

Rows = tuple[tuple[Cell, ...], ...]


def table_of(section: Section, hrefs: Mapping[str, str]) -> tuple[tuple[str, ...], Rows]:
    """Headers and rows, without columns that are empty throughout; the first column leads to the trials."""
    kinds = [column.kind for column in section.columns]
    used = [place for place in range(len(kinds)) if any(row[place] not in (None, "") for row in section.rows)]
    headers = tuple(section.columns[place].title for place in used)
    return headers, tuple(
        tuple(
            Cell(
                cell_text(row[place], kinds[place]),
                hrefs.get(str(row[0]), "#trials") if place == 0 or kinds[place] not in WORDS else "",
                numeric=kinds[place] not in WORDS,
            )
            for place in used
        )
        for row in section.rows
    )


def hrefs_of(trials: list[TrialTraces], level_hrefs: Mapping[str, str], level_of: Mapping[str, str]) -> dict[str, str]:
    """Where the trials of each cell of the kernel's view are listed; they may be of several levels."""
    found = {}
    for label, of_cell in grouped(trials, lambda trial: trial.label).items():
        places = {level_hrefs.get(level_of.get(trial.record.trial, ""), "#trials") for trial in of_cell}
        found[label] = places.pop() if len(places) == 1 else "#trials"
    return found


def with_notes(reading: str, section: Section) -> str:
    """The sentence, and what there is to know about the table."""
    return " ".join([reading, *(f"{note[:1].upper()}{note[1:]}" for note in section.notes)])


def counters_figure(trials: Sequence[TrialTraces], hrefs: Mapping[str, str]) -> Figure | None:
    """Ratios to bare metal where there is one, else how the counts lie over the roles; None where none were counted."""
    section = counters.section(trials)
    if section is None:
        return None
    keys = [column.key for column in section.columns]
    told = [dict(zip(keys, row, strict=True)) for row in section.rows]
    compared = [row for row in told if row["ratio"]]
    headers, body = table_of(section, hrefs)
    if compared:
        drawn, reading = _ratios(compared), _ratio_reading(compared)
    else:
        told = [row for row in told if any(row[role] for role in ROLES)]
        drawn, reading = _roles(told), "No bare metal to compare with: shares of the process and of the daemons."
    if not drawn["layer"][-1]["data"]["values"]:
        return None
    more = not_all_drawn(len(compared or told))
    title = f"{section.title.partition(':')[0]}, by role"
    return Figure("counters", title, with_notes(reading + more, section), drawn, headers, body)


def _ratio_reading(compared: Sequence[Mapping[str, Any]]) -> str:
    sure = [row for row in compared if row["low"] is not None and (row["low"] > 1 or row["high"] < 1)]
    if not sure:
        return "Against the same process on bare metal no counter is surely higher or lower."
    sure = sorted(sure, key=lambda row: -abs(row["ratio"] - 1))
    named = [f"{safe_text(row['event'])} {row['ratio']:.3g} times ({safe_text(row['cell'])})" for row in sure]
    return f"Against the same process on bare metal surely moved: {some_of(named)}."


def _ratios(compared: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A lane for each event and cell: the ratio with its interval, on a logarithmic axis around one."""
    lanes = [
        {
            "lane": safe_text(f"{row['event']}, {row['cell']}"), "ratio": row["ratio"], "low": row["low"],
            "high": row["high"], "shown": f"{row['ratio']:.3g} times", "process": number_text(row["workload"]),
            "host": number_text(row["host_process"]),
        }
        for row in compared[:MOST_LANES]
    ]  # fmt: skip
    ends = [value for lane in lanes for value in (lane["ratio"], lane["low"], lane["high"]) if value]
    reach = [min([*ends, 1 / NARROWEST]) * 0.95, max([*ends, NARROWEST]) * 1.05]
    x = {"type": "quantitative", "title": "times bare metal's", "scale": {"type": "log", "domain": reach}}
    told = tooltip(lane="event", shown="ratio", process="process", host="on bare metal")
    return {
        "height": {"step": LANE},
        "encoding": {"y": {"field": "lane", "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            {"mark": {"type": "rule"}, "data": rows([{"one": 1}]), "encoding": {"x": {"field": "one", **x}, "y": None}},
            {
                "data": rows([lane for lane in lanes if lane["low"] is not None]),
                "mark": {"type": "rule", "strokeWidth": 2.5, "color": "@level-1"},
                "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}, "tooltip": told},
            },
            {"data": rows(lanes), **label_above("lane", beside=90)},
            {"data": rows(lanes), **figures_above("shown")},
            {
                "data": rows(lanes),
                "mark": {"type": "point", "size": 110, "color": "@level-1", "opacity": 1},
                "encoding": {"x": {"field": "ratio", **x}, "tooltip": told},
            },
        ],
    }  # fmt: skip


def _roles(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A lane for each event and cell: the shares of the roles."""
    names = [name for key, name in ROLES.items() if any(row[key] for row in told)]
    pieces = [
        {"lane": safe_text(f"{row['event']}, {row['cell']}"), "role": name, "value": row[key],
         "shown": number_text(row[key])}
        for row in told[:MOST_LANES] for key, name in ROLES.items() if row[key]
    ]  # fmt: skip
    lanes = [{"lane": lane} for lane in dict.fromkeys(piece["lane"] for piece in pieces)]
    colours = {"domain": names, "range": [part_colour(number + 1) for number in range(len(names))]}
    across = {"field": "value", "type": "quantitative", "stack": "normalize", "title": None, "axis": {"format": ".0%"}}
    return {
        "height": {"step": LANE},
        "encoding": {"y": {"field": "lane", "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            {"data": rows(lanes), **label_above("lane", beside=0)},
            {
                "data": rows(pieces),
                "mark": {"type": "bar", "height": 18},
                "encoding": {
                    "x": across, "color": {"field": "role", "scale": colours, "legend": legend(names)},
                    "tooltip": tooltip(lane="event", role="role", shown="count"),
                },
            },
        ],
    }  # fmt: skip


def faults_figure(trials: Sequence[TrialTraces], hrefs: Mapping[str, str]) -> Figure | None:
    """A lane for each cell and role, its faults by cause; None where none were traced."""
    section = counters.fault_causes(trials)
    parts = _parts(section) if section is not None else {}
    if section is None or not parts:
        return None
    causes = [column.title for column in section.columns[_BEFORE:-_AFTER]]
    names = {cause: safe_text(cause) for cause in causes if any(cause in known for known in parts.values())}
    told = [f"{lane} {number_text(sum(known.values()))} ({_most(known)})" for lane, known in parts.items()]
    headers, body = table_of(section, hrefs)
    reading = with_notes(f"Page faults of a run, medians over trials: {some_of(told)}.", section)
    chart = chart_spec(stack_chart(parts, names, "faults"))
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
    """The largest part, with its share."""
    part, count = max(known.items(), key=lambda item: item[1])
    total = sum(known.values())
    return f"{share_text(count / total)} {safe_text(part)}" if total else "none"


def reasons_figure(trials: Sequence[TrialTraces], hrefs: Mapping[str, str]) -> Figure | None:
    """Write-backs of each cell, stacked by reason; None where none were traced."""
    section = writebacks.section(trials)
    if section is None:
        return None
    parts: dict[str, dict[str, float]] = {}
    for label, reason, count, *_ in section.rows:
        if reason != writebacks.ALL and isinstance(count, float):
            parts.setdefault(safe_text(label), {})[safe_text(reason)] = count
    if not parts:
        return None
    totals = {label: sum(known.values()) for label, known in parts.items()}
    told = [f"{label} {number_text(total)} ({_most(parts[label])})" for label, total in totals.items()]
    names = {reason: reason for known in parts.values() for reason in known}
    chart = chart_spec(stack_chart(parts, names, "write-backs"))
    headers, body = table_of(section, hrefs)
    reading = with_notes(f"Write-backs of a run, medians over trials: {some_of(told)}.", section)
    return Figure("write-backs", section.title, reading, chart, headers, body)


def intervals_figure(
    trials: Sequence[TrialTraces], hrefs: Mapping[str, str], numbers: Mapping[str, int] | None = None
) -> Figure | None:
    """The share of intervals that are no longer than so many seconds, cell by cell; None where there are none.

    `numbers`: of the levels' colours, which are the same on the whole page.
    """
    section = writebacks.intervals_section(trials)
    if section is None:
        return None
    found = {label: writebacks.gaps_of(group) for label, group in by_label(trials).items()}
    gaps = {label: np.sort(values) for label, values in found.items() if len(values)}
    place = [column.key for column in section.columns].index("period_s")
    periods = sorted({float(period) for row in section.rows if isinstance(period := row[place], int | float)})
    told = [f"{safe_text(label)} {time_text(float(np.median(values)))}" for label, values in gaps.items()]
    reading = f"Medians of the time between two write-backs of a device: {some_of(told)}."
    if len(periods) == 1:
        reading += f" The dashed line is how often the kernel looks: every {time_text(periods[0])}."
    headers, body = table_of(section, hrefs)
    chart = _gaps_chart(dict(list(gaps.items())[:CURVES]), periods, numbers or {})
    return Figure("write-back-intervals", section.title, with_notes(reading, section), chart, headers, body)


def _gaps_chart(gaps: Mapping[str, Any], periods: Sequence[float], numbers: Mapping[str, int]) -> dict[str, Any]:
    points: list[dict[str, Any]] = []
    for label, values in gaps.items():
        shares = np.arange(1, len(values) + 1) / len(values)
        chosen = np.unique(np.linspace(0, len(values) - 1, min(CURVE_POINTS, len(values))).astype(int))
        at = np.maximum(values, SHORTEST_S)
        points.append({"cell": safe_text(label), "s": float(at[0]), "share": 0.0})
        points += [{"cell": safe_text(label), "s": float(at[n]), "share": float(shares[n])} for n in chosen]
    names = [safe_text(label) for label in gaps]
    known = all(label in numbers for label in gaps)
    colours = {
        "domain": names,
        "range": [level_colour(numbers[label]) if known else part_colour(place) for place, label in enumerate(gaps)],
    }
    x = {"type": "quantitative", "title": "time between two write-backs, s", "scale": {"type": "log"}}
    return {
        "height": 240,
        "layer": [
            {
                "data": rows([{"s": period} for period in periods]),
                "mark": {"type": "rule", "strokeDash": [5, 4], "color": "@quiet"},
                "encoding": {"x": {"field": "s", **x}},
            },
            {
                "data": rows(points),
                "params": [{"name": "chosen", "select": {"type": "point", "fields": ["cell"]}, "bind": "legend"}],
                "mark": {"type": "line", "interpolate": "step-after"},
                "encoding": {
                    "x": {"field": "s", **x},
                    "y": {"field": "share", "type": "quantitative", "title": "share of the intervals",
                          "axis": {"format": ".0%"}, "scale": {"domain": [0, 1]}},
                    "color": {"field": "cell", "scale": colours, "legend": legend(names)},
                    "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.1},
                    "tooltip": tooltip(cell="where", s="seconds", share="share no longer"),
                },
            },
        ],
    }  # fmt: skip


def page_writes_figure(store: Store) -> Figure:
    """That of a store's traced trials, or a sentence about what it takes."""
    figure = hot_pages_figure(traced_trials(store))
    if figure is None:
        raise TareError(f"{store.path}: no trial has page writes to draw; they take `probes: [ftrace]`.")
    return figure


def hot_pages_figure(trials: Sequence[TrialTraces]) -> Figure | None:
    """One panel a cell, of its first traced trial; None where no pages were traced."""
    found = [each for each in scatters(trials) if each.of]
    if not found:
        return None
    points = [
        {"cell": safe_text(each.label), "s": second, "page": page, "reason": safe_text(reason)}
        for each in found
        for second, page, reason in zip(
            each.seconds.tolist(), each.pages.tolist(), each.reasons.tolist(), strict=True
        )
    ]  # fmt: skip
    reasons = sorted({str(point["reason"]) for point in points})
    scale = {"domain": reasons, "range": [part_colour(number) for number in range(len(reasons))]}
    drawn = {
        "mark": {"type": "point", "filled": True, "size": 6, "opacity": 0.6},
        "encoding": {
            "x": {"field": "s", "type": "quantitative", "title": "time, s"},
            "y": {"field": "page", "type": "quantitative", "title": "page, in the order of the disk"},
            "color": {"field": "reason", "type": "nominal", "title": None, "scale": scale},
        },
    }
    panels = {"field": "cell", "type": "nominal", "title": None, "sort": None}
    chart = {"data": rows(points), "facet": panels, "columns": 2, "spec": {"width": 210, "height": 200, **drawn}}
    told = "; ".join(f"{safe_text(each.label)}: {each.of:,} page writes" for each in found)
    reading = f"A page that is written again and again shows as a line. {told}."
    table = tuple(
        (Cell(safe_text(each.label)), Cell(f"{each.of:,}", numeric=True), Cell(f"{len(each.pages):,}", numeric=True))
        for each in found
    )
    return Figure(
        "page-writes", "Pages written, over time", reading, chart, ("where", "page writes", "points drawn"), table
    )


# The flushing layer (S2, Fig. 6): latency of write-backs with it, against the disk alone, by capacity and policy.


def layer_figure(store: Store) -> Figure | None:
    """That of a report: the first traced trial of each cell, through the layer by LRU; None where there is no trace."""
    traces = list({trace.name: trace for trace in reversed(list(store_traces(store))) if trace.writes}.values())[::-1]
    writes = sum(trace.writes for trace in traces)
    if not traces or writes * len(SIZES) > MOST_WRITES:
        return None
    layers = [Layer(POLICIES["lru"], size) for size in SIZES]
    return flushing_figure([simulate(trace, layers) for trace in traces])


def flushing_figure(found: Sequence[Simulation]) -> Figure:
    """One panel a trace; the band is where the paper's eight cases lie."""
    runs = [run for each in found for run in each.runs if run.layer.policy.buffers and run.layer.nvm_bytes is not None]
    body: list[tuple[Cell, ...]] = []
    for run in runs:
        words = (run.trace, run.layer.policy.name, run.layer.destage.name)
        figures = (buffer_text(run), time_text(run.latency.total_s), share_text(_left(run)))
        body.append((*(Cell(safe_text(word)) for word in words), *(Cell(text, numeric=True) for text in figures)))
    title = "I/O latency with a non-volatile flushing layer, as a share of the disk alone"
    headers = ("trace", "policy", "destage", "buffer", "latency", "of the disk alone")
    return Figure("flushing-layer", title, _layer_reading(runs), _layer_chart(runs), headers, tuple(body))


def _layer_chart(runs: Sequence[Run]) -> dict[str, Any]:
    kinds = list(dict.fromkeys(_kind(run) for run in runs))
    points = [
        {"trace": safe_text(run.trace), "kind": _kind(run), "size": (run.layer.nvm_bytes or 0) / 2**20,
         "share": _left(run), "shown": share_text(_left(run)), "buffer": buffer_text(run)}
        for run in runs if run.layer.nvm_bytes
    ]  # fmt: skip
    named = [*kinds, _PAPERS]
    colours = [*(part_colour(number) for number in range(len(kinds))), "@band-edge"]
    shapes = [*(shape_of(number + 1) for number in range(len(kinds))), "square"]
    coded = {"title": None, "type": "nominal"}
    colour = {**coded, "scale": {"domain": named, "range": colours}}
    layers = [
        {
            "transform": [
                {"aggregate": [{"op": "count", "as": "points"}], "groupby": ["trace"]},  # one band a panel
                *({"calculate": str(edge), "as": name} for name, edge in _BAND.items()),
            ],
            "mark": {"type": "rect", "opacity": 0.35, "clip": True},
            "encoding": {
                "color": {"datum": _PAPERS, **colour},
                "x": {"value": 0}, "x2": {"value": "width"},
                "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"},
            },
        },
        {
            "mark": {"type": "line", "point": {"filled": True, "size": 45}},
            "encoding": {
                "x": {"field": "size", "type": "quantitative", "scale": {"type": "log"}, "title": "buffer, MiB",
                      "axis": {"values": [0.1, 1, 10, 100, 1000]}},
                "y": {"field": "share", "type": "quantitative", "title": "latency, of the disk alone",
                      "axis": {"format": ".0%"}},
                "color": {"field": "kind", **colour},
                "shape": {"field": "kind", **coded, "scale": {"domain": named, "range": shapes}},
                "tooltip": [{"field": name} for name in ("trace", "kind", "buffer", "shown")],
            },
        },
    ]  # fmt: skip
    if len(dict.fromkeys(run.trace for run in runs)) < 2:
        return {"data": rows(points), "height": 240, "layer": layers}
    panels = {"field": "trace", "type": "nominal", "title": None, "sort": None}
    return {"data": rows(points), "facet": panels, "columns": 2, "spec": {"height": 180, "width": 200, "layer": layers}}


def _kind(run: Run) -> str:
    return f"{run.layer.policy.name}, {run.layer.destage.name}"


def _left(run: Run) -> float:
    return 1 - run.latency.improvement


def _layer_reading(runs: Sequence[Run]) -> str:
    if not runs:
        return "No run has a buffer of a limited size."
    least = min(runs, key=_left)
    reached = [band for band in bands(runs) if band.within]
    smallest = min((band.within[0] for band in reached), key=capacity, default=None)
    told = f"The least is {share_text(_left(least))}, with {buffer_text(least)} ({_kind(least)})"
    if smallest is None:
        return f"{told}; none that was tried lies within the paper's 77 to 90 % less."
    return f"{told}; the paper's 77 to 90 % less appear from {buffer_text(smallest)} on ({_kind(smallest)})."
