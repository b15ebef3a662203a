"""Every trial as a sign over the blocks in run order; the trials of one block are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from tare.analysis.model import Weighing
from tare.report.figure import NARROW, WIDE, Cell, Drawing, Figure, Key, drawn
from tare.report.shown import Shown
from tare.report.svg import Scale, box, cross, key, line, sign, tag, text, ticks
from tare.report.words import count_text, metric_name, quantity_text, quantity_texts, safe_text

LEFT = 58.0
RIGHT = 10.0
TOP = 10.0
HEIGHT = 250.0
LANE = 34.0  # under the axis of values: trials without a figure
SIZE = 4.5

Places = Mapping[str, float]  # anchor -> x


def trials_figure(weighing: Weighing, shown: Sequence[Shown], levels: Sequence[str]) -> Figure | None:
    """None where no trial has a figure yet."""
    with_value = [each for each in shown if each.value is not None]
    if not with_value:
        return None
    title = f"Every trial: {metric_name(weighing.metric)} by block, in run order"
    reading = _reading(weighing, with_value, shown)
    wide, narrow = drawn(
        "trials-by-block",
        title,
        reading,
        _drawing(WIDE, weighing, shown, levels),
        _drawing(NARROW, weighing, shown, levels),
    )
    columns = [
        (level, twin) for level in levels for twin in (0, 1) if any((e.level, e.twin) == (level, twin) for e in shown)
    ]
    headers = ("block", *(f"{level} (A/A twin)" if twin else level for level, twin in columns))
    rows = _rows(weighing.metric, shown, columns)
    return Figure("trials-by-block", title, reading, wide, narrow, _legend(shown, levels), headers, rows)


def _drawing(width: float, weighing: Weighing, shown: Sequence[Shown], levels: Sequence[str]) -> Drawing:
    values = [each.value for each in shown if each.value is not None]
    room = 0.06 * (max(values) - min(values) or abs(max(values)) * 0.1 or 1.0)
    up = Scale(min(values) - room, max(values) + room, TOP + HEIGHT, TOP)
    places, blocks = _places(shown, LEFT, width - RIGHT)
    missing = [each for each in shown if each.value is None]
    bottom = TOP + HEIGHT + (LANE if missing else 0)
    content = _stripes(blocks, bottom, 18 if width > 500 else 6)
    content += _value_axis(weighing.metric, up, width)
    content += _joins(shown, {each.level: each.against for each in weighing.comparisons}, places, up)
    content += [
        _dot(each, each.value, levels, places[each.anchor], up, weighing.metric)
        for each in shown
        if each.value is not None
    ]
    if missing:
        content.append(text(LEFT - 8, TOP + HEIGHT + 25, "left out", anchor="end", class_="tick"))
        content += [_absent(each, places[each.anchor], TOP + HEIGHT + 21) for each in missing]
    content.append(text((LEFT + width - RIGHT) / 2, bottom + 36, "block", anchor="middle", class_="tick"))
    return Drawing(tuple(content), bottom + 42)


def _places(shown: Sequence[Shown], start: float, end: float) -> tuple[Places, dict[str, tuple[float, float]]]:
    """Where each trial stands, and where each block begins and ends: as wide as the trials that it holds."""
    blocks: dict[str, list[Shown]] = {}
    for each in shown:
        blocks.setdefault(each.block, []).append(each)
    slots = sum(len(held) + 0.6 for held in blocks.values())
    step = (end - start) / slots
    x, places, edges = start, {}, {}
    for block, held in blocks.items():
        edges[block] = (x, x + step * (len(held) + 0.6))
        for place, each in enumerate(held):
            places[each.anchor] = x + step * (place + 0.8)
        x = edges[block][1]
    return places, edges


def _stripes(blocks: Mapping[str, tuple[float, float]], bottom: float, labels: int) -> list[Markup]:
    content = []
    every = max(1, -(-len(blocks) // labels))
    for place, (block, (start, end)) in enumerate(blocks.items()):
        if place % 2 == 0:
            content.append(box(start, TOP, end - start, bottom - TOP, "stripe"))
        if place % every == 0 and block:
            content.append(text((start + end) / 2, bottom + 17, safe_text(block)[:12], anchor="middle", class_="tick"))
    return content


def _value_axis(metric: str, up: Scale, width: float) -> list[Markup]:
    values = ticks(up.low, up.high, 5)
    content = []
    for value, label in zip(values, quantity_texts(metric, values), strict=True):
        content.append(line(LEFT, up(value), width - RIGHT, up(value), "grid"))
        content.append(text(LEFT - 8, up(value) + 4, label, anchor="end", class_="tick"))
    return content


def _joins(shown: Sequence[Shown], against: Mapping[str, str], places: Places, up: Scale) -> list[Markup]:
    """A line from the baseline of a block to each level compared with it: the pairs that the effect rests on."""
    firsts = {(each.level, each.block): each for each in shown if not each.twin and each.value is not None}
    joins = []
    for (level, block), each in firsts.items():
        baseline = firsts.get((against.get(level, ""), block))
        if baseline is not None and baseline.value is not None and each.value is not None:
            ends = places[baseline.anchor], up(baseline.value), places[each.anchor], up(each.value)
            joins.append(line(*ends, "join"))
    return joins


def _dot(each: Shown, value: float, levels: Sequence[str], x: float, up: Scale, metric: str) -> Markup:
    marks = [sign(levels.index(each.level), x, up(value), SIZE, "hollow" if each.twin else "")]
    if each.outlier:
        marks.append(tag("circle", cx=x, cy=up(value), r=9, class_="ring"))
    if each.state == "suspect":
        marks.append(text(x, up(value) - 9, "?", anchor="middle", class_="doubt"))
    return _linked(each, quantity_text(metric, value), marks)


def _absent(each: Shown, x: float, y: float) -> Markup:
    return _linked(each, "", [cross(x, y, 4, "absent")])


def _linked(each: Shown, figure: str, marks: Sequence[Markup]) -> Markup:
    """The trial's row in the table, one click away; the words appear when the pointer rests on it."""
    doubts = [each.outlier] if each.outlier else []
    words = [
        f"{each.label}, block {each.block}",
        figure,
        "" if each.state == "ok" else each.state,
        *each.reasons,
        *doubts,
    ]
    told = tag("title", ", ".join(word for word in words if word))
    return tag("a", told, *marks, href=f"#{each.anchor}", tabindex="-1")


def _legend(shown: Sequence[Shown], levels: Sequence[str]) -> tuple[Key, ...]:
    keys = [Key(key(sign(number, 8, 8, SIZE)), level) for number, level in enumerate(levels)]
    if any(each.twin for each in shown):
        keys.append(Key(key(sign(0, 8, 8, SIZE, "hollow")), "the baseline's A/A twin"))
    if any(each.outlier for each in shown):
        keys.append(Key(key(tag("circle", cx=8, cy=8, r=7, class_="ring")), "outlier, used all the same"))
    if any(each.state == "suspect" and each.value is not None for each in shown):
        keys.append(Key(key(text(8, 13, "?", anchor="middle", class_="doubt")), "suspect, used all the same"))
    if any(each.value is None for each in shown):
        keys.append(Key(key(cross(8, 8, 4, "absent")), "left out"))
    return tuple(keys)


def _rows(metric: str, shown: Sequence[Shown], columns: Sequence[tuple[str, int]]) -> tuple[tuple[Cell, ...], ...]:
    texts = iter(quantity_texts(metric, [each.value for each in shown if each.value is not None]))
    cells = {each.anchor: next(texts) if each.value is not None else each.state for each in shown}
    found: dict[str, dict[tuple[str, int], Shown]] = {}
    for each in shown:
        found.setdefault(each.block, {})[each.level, each.twin] = each
    return tuple(
        (
            Cell(block, numeric=True),
            *(_cell(cells, held[column]) if column in held else Cell("missing", numeric=True) for column in columns),
        )
        for block, held in found.items()
    )


def _cell(cells: Mapping[str, str], each: Shown) -> Cell:
    return Cell(cells[each.anchor], f"#{each.anchor}", numeric=True)


def _reading(weighing: Weighing, with_value: Sequence[Shown], shown: Sequence[Shown]) -> str:
    blocks = len({each.block for each in shown})
    sentence = f"{count_text(len(with_value), 'trial')} in {count_text(blocks, 'block')}; a line joins the pairs"
    counted = [_above(comparison.against, comparison.level, with_value) for comparison in weighing.comparisons]
    told = [part for part in counted if part]
    return f"{sentence}{': ' if told else ''}{', '.join(told)}. The axis does not begin at zero."


def _above(against: str, level: str, with_value: Sequence[Shown]) -> str:
    values = {(each.level, each.block): each.value for each in with_value if not each.twin}
    pairs = [
        (value, values[against, block])
        for (name, block), value in values.items()
        if name == level and (against, block) in values
    ]
    above = sum(ours > theirs for ours, theirs in pairs if ours is not None and theirs is not None)
    return f"{safe_text(level)} lay above {safe_text(against)} in {above} of {len(pairs)}" if pairs else ""
