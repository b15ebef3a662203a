"""The effect plot of the first screen: a panel for each job, in it a lane for each level, and the answer in a sentence.

A lane's places are percentages of its width: the page draws it as SVG at any width, with no script and no library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tare.analysis.cells import together
from tare.analysis.model import Comparison, Weighing
from tare.analysis.questions.jobs import Place
from tare.analysis.sentences import (
    effect_of,
    floor_of,
    interval_of,
    verdict_doubts,
    verdict_word,
)
from tare.analysis.why.layers import LayerCost, Waterfall
from tare.base.text import effect_text, quantity_text, safe_text, share_text
from tare.records.model import grouped
from tare.report.evidence import ReportRow, place_of
from tare.report.layout import MOST_TOLD, in_words, some_of
from tare.report.text.verdict import medians_of
from tare.report.text.why import layer_name, moved_text

MOST_DOTS = 1500  # block by block, on the whole page
BEYOND = 8  # times what the others need: an interval that long leaves the axis, and an arrow says so
_FEWEST_TICKS = 3


Blocks: TypeAlias = Mapping[tuple[str, str], Sequence[tuple[float, str, str]]]  # of a pair: effect, href, words


@dataclass(frozen=True, slots=True)
class Dot:
    """The effect of one block, which leads to its trial."""

    at: float
    href: str
    told: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One level: where its marks stand, in per cent of the width, and what they say."""

    name: str
    href: str
    word: str
    verdict: str
    doubts: str
    effect: str
    interval: str
    medians: str
    told: str  # all its figures, for the pointer and for those who do not see the marks
    colour: str  # by the verdict
    order: int  # as the study declares it
    size: float  # of the effect: to sort by
    factors: tuple[str, ...] = ()
    point: float | None = None
    low: float | None = None
    high: float | None = None
    floor: tuple[float, float] | None = None  # begin and width of the A/A band, of the judged metric
    bar: tuple[float, float] | None = None  # of a waterfall: begin and width
    before: bool = False  # the interval goes on beyond the left end of the axis
    after: bool = False
    dots: tuple[Dot, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One job on its own axis."""

    job: str
    against: str
    lanes: tuple[Lane, ...]
    zero: float
    ticks: tuple[tuple[float, str], ...]
    band: tuple[float, float] | None  # begin and width of the margin
    margin: str
    clipped: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """All panels, and what their marks mean."""

    panels: tuple[Panel, ...]
    factors: tuple[tuple[str, tuple[str, ...]], ...] = ()  # what lanes can be filtered by: its name and its values
    waterfall: bool = False
    legend: tuple[tuple[str, str], ...] = ()  # (mark, meaning)

    @property
    def lanes(self) -> int:
        return sum(len(panel.lanes) for panel in self.panels)


@dataclass(frozen=True, slots=True)
class Axis:
    """Shares to per cent of the width."""

    low: float
    high: float

    def at(self, value: float) -> float:
        return round(100 * (min(max(value, self.low), self.high) - self.low) / (self.high - self.low), 3)

    def span(self, low: float, high: float) -> tuple[float, float]:
        return self.at(low), round(self.at(high) - self.at(low), 3)

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Round numbers, zero among them: the widest apart that leave enough of them."""
        power = 10.0 ** math.ceil(math.log10(self.high - self.low))
        for step in (power * part for scale in (1.0, 0.1, 0.01) for part in (scale, scale / 2, scale / 5)):
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            if last - first + 1 >= _FEWEST_TICKS:
                break
        shares = [n * step for n in range(first, last + 1)]
        return tuple((self.at(share), "0" if abs(share) < 1e-12 else f"{100 * share:+.6g} %") for share in shares)


def effect_plot(
    weighing: Weighing, shown: Sequence[ReportRow], places: Mapping[str, Place], hrefs: Mapping[str, str]
) -> Plot | None:
    """None where no comparison has an effect yet."""
    if not any(each.effect is not None for each in weighing.comparisons):
        return None
    jobs = grouped(weighing.comparisons, lambda each: place_of(each.level, places).job)
    blocks = _block_effects(weighing, shown)
    axes = {job: _axis(held, blocks) for job, held in jobs.items()}
    widths = [axis.high - axis.low for axis in axes.values()]
    if len(axes) > 1 and max(widths) <= BEYOND * min(widths):  # one axis where that leaves no job too small to be seen
        whole = Axis(min(each.low for each in axes.values()), max(each.high for each in axes.values()))
        axes = dict.fromkeys(axes, whole)
    panels = [_panel(job, held, axes[job], places, hrefs, blocks) for job, held in jobs.items()]
    if len({len(place_of(each.level, places).factors) for each in weighing.comparisons}) > 1:  # no factor that all have
        panels = [
            replace(each, lanes=tuple(replace(one, factors=(one.factors[0], one.factors[-1])) for one in each.lanes))
            for each in panels
        ]
    return Plot(tuple(panels), _filters(weighing, places), legend=tuple(_legend(weighing, panels, blocks)))


def _axis(comparisons: Sequence[Comparison], blocks: Blocks) -> Axis:
    """Wide enough for the margin, the noise and every interval; of one that is far longer than all others, a part."""
    margin = max(each.margin for each in comparisons)
    floors = [each.aa_floor for each in comparisons if each.aa_floor is not None]
    reach = [0.0, margin, -margin, *floors, *(-floor for floor in floors)]
    points = [each.effect for each in comparisons if each.effect is not None]
    ends = [end for each in comparisons for end in (each.low, each.high) if end is not None]
    room = BEYOND * max(map(abs, [*reach, *points]))
    reach += [*points, *(max(-room, min(room, end)) for end in ends)]
    near = max(map(abs, reach)) * 1.25
    held = [value for each in comparisons for value, _, _ in blocks.get((each.level, each.against), ())]
    reach += [value for value in held if abs(value) <= near]
    edge = 0.05 * (max(reach) - min(reach) or 0.02)
    return Axis(min(reach) - edge, max(reach) + edge)


def _panel(
    job: str,
    comparisons: Sequence[Comparison],
    axis: Axis,
    places: Mapping[str, Place],
    hrefs: Mapping[str, str],
    blocks: Blocks,
) -> Panel:
    made = [
        _lane(each, order, axis, place_of(each.level, places), hrefs.get(each.level, ""))
        for order, each in enumerate(comparisons)
    ]
    lanes = [
        replace(lane, dots=tuple(Dot(axis.at(value), href, told) for value, href, told in blocks.get(pair, ())))
        for lane, pair in zip(made, [(each.level, each.against) for each in comparisons], strict=True)
    ]
    if not _is_a_number(comparisons, places):
        lanes.sort(key=lambda lane: -lane.size)
    margin = max(each.margin for each in comparisons)
    against = dict.fromkeys(_baseline_name(place_of(each.against, places)) for each in comparisons)
    told = in_words(list(against)) if len(against) <= MOST_TOLD else some_of(list(against))
    return Panel(
        job=job,
        against=told,
        lanes=tuple(lanes),
        zero=axis.at(0.0),
        ticks=axis.ticks(),
        band=axis.span(-margin, margin),
        margin=f"±{share_text(margin)}",
        clipped=any(lane.before or lane.after for lane in lanes),
    )


def _baseline_name(place: Place) -> str:
    """What it is compared with: the value of the factor that is compared; the others are the same on both sides."""
    name = place.factors[0][1] if place.factors else place.name
    return "bare metal" if name == "bare" else name


def _is_a_number(comparisons: Sequence[Comparison], places: Mapping[str, Place]) -> bool:
    """Whether the lanes have an order of their own: 1, 2 and 4 workers are not sorted by their effect."""
    names = [dict(place_of(each.level, places).factors[:1]) for each in comparisons]
    values = [text for held in names for text in held.values()]
    return len(set(values)) > 1 and all(any(sign.isdigit() for sign in text) for text in values)


def _lane(each: Comparison, order: int, axis: Axis, place: Place, href: str) -> Lane:
    theirs, ours = medians_of(each)
    figures = f"{effect_of(each)} {interval_of(each)}".strip() or "no effect known"
    lane = Lane(
        name=place.name,
        href=href,
        word=each.verdict,
        verdict=verdict_word(each),
        doubts=verdict_doubts(each),
        effect=effect_of(each),
        interval=interval_of(each),
        medians=f"{theirs} -> {ours}",
        told=f"{place.job + ': ' if place.job else ''}{place.name}: {figures}, {verdict_word(each)}; "
        f"{each.called} {theirs} -> {ours}; n = {each.n}; A/A noise floor {floor_of(each)}",
        colour=each.verdict,
        order=order,
        size=-math.inf if each.effect is None else each.effect,
        factors=(place.job, *(text for _, text in place.factors), each.verdict),
    )
    if each.effect is None:
        return lane
    floor = None if each.aa_floor is None else axis.span(-each.aa_floor, each.aa_floor)
    lane = replace(lane, point=axis.at(each.effect), floor=floor)
    if each.low is None or each.high is None:
        return lane
    return replace(
        lane, low=axis.at(each.low), high=axis.at(each.high), before=each.low < axis.low, after=each.high > axis.high
    )


def _block_effects(weighing: Weighing, shown: Sequence[ReportRow]) -> Blocks:
    """(level, against) -> the effect of each block that holds both, with the place of its trial on the page.

    Nothing where they are too many to be drawn.
    """
    first: dict[str, dict[str, ReportRow]] = {}  # level -> block -> its trial
    for row in shown:
        if row.value is not None and not row.twin:
            first.setdefault(row.level, {})[row.block] = row
    sides = grouped(weighing.measurements, lambda measured: measured.level)
    found: dict[tuple[str, str], list[tuple[float, ReportRow]]] = {}
    for each in weighing.comparisons:
        left, right, _ = together(sides.get(each.level, []), sides.get(each.against, []))
        apart = {one.trial for level in (each.level, each.against) for one in sides.get(level, [])}
        apart -= {one.trial for one in (*left, *right)}  # run again far later: the comparison leaves them out
        baseline = first.get(each.against, {})
        for block, ours in first.get(each.level, {}).items():
            theirs = baseline.get(block)
            if theirs is None or not theirs.value or ours.value is None or {ours.trial, theirs.trial} & apart:
                continue
            found.setdefault((each.level, each.against), []).append((ours.value / theirs.value - 1, ours))
    if sum(map(len, found.values())) > MOST_DOTS:
        return {}

    def told(effect: float, row: ReportRow) -> str:
        text = quantity_text(weighing.metric, row.value or 0.0)
        return f"block {safe_text(row.block)}: {effect_text(effect)}, {text}"

    return {
        pair: [(effect, f"#{row.anchor}", told(effect, row)) for effect, row in held] for pair, held in found.items()
    }


def _filters(weighing: Weighing, places: Mapping[str, Place]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Job, each factor, and the verdict, where lanes differ in it; in the order in which they were declared."""
    held = [(place_of(each.level, places), each) for each in weighing.comparisons]
    count = max((len(place.factors) for place, _ in held), default=0)
    if any(len(place.factors) != count for place, _ in held):
        count = 0
    columns: list[tuple[str, list[str]]] = [("job", [place.job for place, _ in held])]
    for number in range(count):
        name = held[0][0].factors[number][0].rpartition(".")[2].replace("_", " ")
        columns.append((name, [place.factors[number][1] for place, _ in held]))
    columns.append(("verdict", [each.verdict for _, each in held]))
    return tuple((name, tuple(dict.fromkeys(values))) for name, values in columns)


def _legend(
    weighing: Weighing, panels: Sequence[Panel], blocks: Mapping[tuple[str, str], object]
) -> list[tuple[str, str]]:
    lanes = [lane for panel in panels for lane in panel.lanes]
    margins = dict.fromkeys(panel.margin for panel in panels)
    told = [("point", f"effect on {weighing.called}")]
    told += (
        [("interval", "where it lies, with 95 % confidence or more")]
        if any(lane.low is not None for lane in lanes)
        else []
    )
    told += [("band", f"declared margin, {' and '.join(margins)}")]
    told += [("floor", "A/A noise floor of this metric")] if any(lane.floor for lane in lanes) else []
    told += [("dot", "one block; it leads to its trial")] if blocks else []
    told += (
        [("beyond", "goes on beyond the axis; the numbers are in the row")] if any(p.clipped for p in panels) else []
    )
    return told


# The waterfall


def waterfall_plot(found: Waterfall) -> Plot | None:
    """A lane for each layer: its bar begins where the one before it ended, as shares of bare metal."""
    steps = [layer for layer in found.layers if layer.added is not None and layer.added.effect is not None]
    if not steps:
        return None
    spans = layer_spans(steps)
    total = found.total
    values = [0.0, *(value for span in spans for value in span)]
    values += [end for end in (total.low, total.high, total.effect) if end is not None]
    edge = 0.05 * (max(values) - min(values) or 0.02)
    axis = Axis(min(values) - edge, max(values) + edge)
    lanes = [
        _layer_lane(layer, span, order, axis, layer in found.guilty)
        for order, (layer, span) in enumerate(zip(steps, spans, strict=True))
    ]
    size = total.effect or 0.0
    whole = _lane(total, len(lanes), axis, Place("", "the whole container"), "#trials")
    bar = axis.span(min(0.0, size), max(0.0, size))
    lanes.append(replace(whole, bar=bar, factors=(total.verdict,), floor=None))
    # No band for the margin: it belongs to an effect counted from zero, and a layer's counts from where its bar begins.
    panel = Panel("", "bare metal", tuple(lanes), axis.at(0.0), axis.ticks(), None, f"±{share_text(total.margin)}")
    legend = [("bar", "what a layer adds"), ("interval", "its interval, counted from where its bar begins")]
    return Plot((panel,), (("verdict", tuple(dict.fromkeys(lane.word for lane in lanes))),), True, tuple(legend))


def layer_spans(steps: Sequence[LayerCost]) -> list[tuple[float, float, float, float]]:
    """Where each bar begins and ends, and its interval: effects multiply, so that they add up as logarithms."""
    spans, at = [], 0.0
    for layer in steps:
        added = layer.added
        assert added is not None
        assert added.effect is not None
        end = at + math.log1p(added.effect)
        low = end if added.low is None else at + math.log1p(added.low)
        high = end if added.high is None else at + math.log1p(added.high)
        spans.append((math.expm1(at), math.expm1(end), math.expm1(low), math.expm1(high)))
        at = end
    return spans


def _layer_lane(
    layer: LayerCost, span: tuple[float, float, float, float], order: int, axis: Axis, guilty: bool
) -> Lane:
    added = layer.added
    assert added is not None
    begin, end, low, high = span
    moved = "; ".join(map(moved_text, layer.moved))
    name = layer_name(layer.layer)
    return Lane(
        name=name,
        href="#trials",
        word=added.verdict,
        verdict=verdict_word(added),
        doubts="surely slower with it" if guilty and added.verdict != "slower" else "",
        effect=effect_of(added),
        interval=interval_of(added),
        medians=moved,
        told="; ".join(
            filter(None, [f"{name} adds {effect_of(added)} {interval_of(added)}, {verdict_word(added)}", moved])
        ),
        colour="slower" if guilty else "part",
        order=order,
        size=added.effect or 0.0,
        factors=(added.verdict,),
        low=None if added.low is None else axis.at(low),
        high=None if added.high is None else axis.at(high),
        bar=axis.span(min(begin, end), max(begin, end)),
    )
