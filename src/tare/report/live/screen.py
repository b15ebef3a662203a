"""The same look for a terminal: over ssh, without a browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tare.report.live.snapshot import row_words

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = {"equivalent": "green", "slower": "red", "faster": "cyan", "cannot_tell": "yellow"}
_STATE_COLOURS = {"vanished": "red", "skipped": "red", "unseen": "yellow", "running": "cyan", "done": "green"}


def screen(looks: Sequence[Any], width: int, devices: int | None = None) -> RenderableType:
    """All stores below each other; of a fleet at most so many `devices`, those in trouble first."""
    return Group(*(piece for look in looks for piece in _store(look, width, devices)))


def _store(look: Any, width: int, devices: int | None) -> list[RenderableType]:
    pieces: list[RenderableType] = [Text(look["name"], style="bold")]
    if "trouble" in look:
        return [*pieces, Text(look["trouble"], style="red")]
    progress = look["progress"]
    bar = Table.grid()
    bar.add_row(ProgressBar(total=max(1, progress["total"]), completed=progress["done"], width=min(60, width)))
    pieces.append(bar)
    pieces.append(Text("; ".join(filter(None, [progress["words"], progress["left"], progress["state"]]))))
    if look["running"]:
        pieces += _running(look["running"], width)
    if look["fleet"]:
        pieces += _fleet(look["fleet"], width, devices)
    pieces += _verdicts(look)
    pieces += [Text(f"left out, {one['count']} x: {one['text']}", style="yellow") for one in look["errors"][:5]]
    pieces += [Text(f"note: {sentence}", style="yellow") for sentence in look["problems"][-5:]]
    pieces[2:2] = [Text(f"not measured: {sentence}", style="yellow") for sentence in look["not_measured"][:5]]
    if look["changed"] or not look["fleet"]:  # of a fleet, this machine is none of the devices
        pieces += [Text(f"{row['what']}: {row['now']}", style="dim") for row in look["device"]]
        told = (
            f"changed now: {row['knob']}: found {row['baseline']}, is {row['now']}, by {row['owner']}"
            for row in look["changed"]
        )
        pieces += [Text(each, style="magenta") for each in told]
    return [*pieces, Text("")]


def _running(running: Any, width: int) -> list[RenderableType]:
    pieces: list[RenderableType] = [Text(f"now: {running['label']} (trial {running['trial']})", style="cyan")]
    grid = Table.grid(padding=(0, 2))
    room = max(10, width - 50)
    for one in running["series"]:
        values = [value for _, value in one["points"]]
        grid.add_row(one["title"], Text(spark(values, room)), f"{values[-1]:g} {one['unit']}")
    pieces += [grid] if running["series"] else []
    if running["step_parts"]:
        parts = ", ".join(f"{one['part']} {one['time']} ({one['share']})" for one in running["step_parts"])
        pieces.append(Text(f"a {running['unit']}: {parts}"))
    return pieces + [Text(f"| {line}"[:width], style="dim") for line in running["output"]]


def _fleet(fleet: Any, width: int, most: int | None) -> list[RenderableType]:
    """The counts, then a row for each device that there is room for."""
    rows = fleet["rows"][:most]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", width=min(width, 120))
    table.add_column("device", no_wrap=True, max_width=24)
    table.add_column("state", no_wrap=True, overflow="ellipsis", ratio=1)
    for title in ("done", "left"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("last", no_wrap=True)
    for row in rows:
        state = Text(row_words(row), style=_STATE_COLOURS.get(row["state"], ""))
        table.add_row(Text(row["name"]), state, str(row["done"]), str(row["left"]), Text(row["last"]))
    rest = len(fleet["rows"]) - len(rows)
    more = [Text(f"and {rest:,} more devices", style="dim")] if rest else []
    return [Text(fleet["words"], style="bold"), table, *more]


def _verdicts(look: Any) -> list[RenderableType]:
    if not look["verdicts"]:
        return [Text(look["verdict_trouble"] or "no verdict yet", style="dim")]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in (look["metric"], "effect", "interval", "verdict", "n"):
        table.add_column(title, justify="right" if title in ("effect", "interval", "n") else "left")
    for one in look["verdicts"]:
        word = Text(one["phrase"], style=_COLOURS.get(one["word"], ""))
        table.add_row(Text(one["level"]), one["effect"], Text(one["interval"]), word, str(one["n"]))
    return [table, *([Text(look["more_verdicts"], style="dim")] if look["more_verdicts"] else [])]


def spark(values: Sequence[float], width: int) -> str:
    """A line of small bars, the newest at the right; of values that share a place the largest is shown."""
    if not values:
        return ""
    each = -(-len(values) // width)
    tops = [max(values[start : start + each]) for start in range(0, len(values), each)]
    low, high = min(0.0, *tops), max(tops)
    span = (high - low) or 1.0
    return "".join(_BARS[min(7, int((top - low) / span * 8))] for top in tops)
