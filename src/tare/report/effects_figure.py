"""The effects with their intervals, against the margin and the noise floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from tare.analysis.model import Comparison, Weighing
from tare.report.columns import cut
from tare.report.figure import NARROW, WIDE, Cell, Drawing, Figure, Key, drawn, in_words
from tare.report.svg import Scale, box, hue, key, line, sign, tag, text, ticks
from tare.report.verdicts import effect_of, interval_of, verdict_phrase
from tare.report.words import effect_text, metric_name, safe_text, share_text

ROW = 54.0  # a row: its label above, its interval below
MIDDLE = 37.0  # of the interval, within its row
STRIP = 20.0  # height of the bands behind it
EDGE = 4.0
LABEL_SHARE = 14.0  # pixels of the whole width for each sign of a label: the figures stand beside it
AXIS = 34.0


def effects_figure(weighing: Weighing, level_hrefs: Mapping[str, str]) -> Figure | None:
    """One row a comparison; beside a single one also its further metrics. None where there is no effect at all."""
    headline = [each for each in weighing.comparisons if each.effect is not None]
    if not headline:
        return None
    beside = [each for each in weighing.others if each.effect is not None] if len(headline) == 1 else []
    numbers = {level: place for place, level in enumerate(level_hrefs)}
    title = f"Effect on {metric_name(weighing.metric)}, against {safe_text(weighing.against)}"
    reading = _reading(headline)
    wide, narrow = drawn(
        "effects",
        title,
        reading,
        _drawing(WIDE, headline, beside, numbers),
        _drawing(NARROW, headline, beside, numbers),
    )
    return Figure(
        "effects", title, reading, wide, narrow, _legend(headline), _HEADERS, _rows(headline + beside, level_hrefs)
    )


_HEADERS = ("level", "metric", "effect", "interval", "margin", "verdict")


def _rows(comparisons: Sequence[Comparison], level_hrefs: Mapping[str, str]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(
        (
            Cell(each.level, level_hrefs.get(each.level, "")),
            Cell(metric_name(each.metric)),
            Cell(effect_of(each), "#trials", numeric=True),
            Cell(interval_of(each), numeric=True),
            Cell(f"±{share_text(each.margin)}", numeric=True),
            Cell(verdict_phrase(each) if place < len(_claimed(comparisons)) else "no claim"),
        )
        for place, each in enumerate(comparisons)
    )


def _claimed(comparisons: Sequence[Comparison]) -> list[Comparison]:
    return [each for each in comparisons if each.metric == comparisons[0].metric]


def _drawing(
    width: float, headline: Sequence[Comparison], beside: Sequence[Comparison], numbers: Mapping[str, int]
) -> Drawing:
    across = _across(headline, width)
    bottom = ROW * (len(headline) + len(beside)) + 6
    content = _axis(across, bottom, 8 if width > 500 else 4)
    for place, each in enumerate(headline):
        content += _bands(headline, across, ROW * place)
        content += _row(each, across, ROW * place, width, numbers.get(each.level, 1), safe_text(each.level))
    for place, each in enumerate(beside, start=len(headline)):
        label = f"{metric_name(each.metric)} (no claim)"
        content += _bands(headline, across, ROW * place)
        content += _row(each, across, ROW * place, width, numbers.get(each.level, 1), label, quiet=True)
    return Drawing(tuple(content), bottom + AXIS)


def _across(headline: Sequence[Comparison], width: float) -> Scale:
    """Wide enough for the margin, the floor and every interval of the headline."""
    reach = [0.0]
    for each in headline:
        reach += [each.margin, -each.margin]
        reach += [value for value in (each.effect, each.low, each.high) if value is not None]
        reach += [each.aa_floor, -each.aa_floor] if each.aa_floor is not None else []
    room = 0.08 * (max(reach) - min(reach) or 0.01)
    return Scale(min(reach) - room, max(reach) + room, EDGE, width - EDGE)


def _bands(headline: Sequence[Comparison], across: Scale, top: float) -> list[Markup]:
    """Behind one interval: the margin that was declared, and in it the noise between two runs of the same thing."""
    margin = max(each.margin for each in headline)
    floors = [each.aa_floor for each in headline if each.aa_floor is not None]
    begin, end = top + MIDDLE - STRIP / 2, top + MIDDLE + STRIP / 2
    bands = [box(across(-margin), begin, across(margin) - across(-margin), STRIP, "band")]
    bands += [line(across(edge), begin, across(edge), end, "band-edge") for edge in (-margin, margin)]
    if floors:
        bands.append(box(across(-max(floors)), begin, across(max(floors)) - across(-max(floors)), STRIP, "floor"))
    return [*bands, line(across(0), begin, across(0), end, "zero")]


def _axis(across: Scale, bottom: float, about: int) -> list[Markup]:
    places = ticks(across.low, across.high, about)
    decimals = 0 if all(abs(place * 100 - round(place * 100)) < 1e-9 for place in places) else 1
    content = [line(across.start, bottom, across.end, bottom, "axis")]
    for place in places:
        label = "0" if place == 0 else f"{place * 100:+.{decimals}f}"
        content += [
            line(across(place), bottom, across(place), bottom + 5, "axis"),
            text(
                across(place), bottom + 20, f"{label} %".replace("-", "\N{MINUS SIGN}"), anchor="middle", class_="tick"
            ),
        ]
    return content


def _row(
    each: Comparison, across: Scale, top: float, width: float, number: int, label: str, *, quiet: bool = False
) -> list[Markup]:
    middle = top + MIDDLE
    figures = f"{effect_of(each)}  {interval_of(each)}".replace("-", "\N{MINUS SIGN}")
    content = [
        text(EDGE, top + 18, cut(label, round(width / LABEL_SHARE)), class_="quiet" if quiet else "strong"),
        text(width - EDGE, top + 18, figures, anchor="end", class_="quiet figure" if quiet else "figure"),
    ]
    colour = "quiet-line" if quiet else hue(number)
    if each.low is not None and each.high is not None:
        content.append(line(across.held(each.low), middle, across.held(each.high), middle, f"interval {colour}"))
        content += [_cap(across, end, middle, colour) for end in (each.low, each.high)]
    if each.effect is not None and across.low <= each.effect <= across.high:
        content.append(sign(number, across(each.effect), middle, 4 if quiet else 6, "faint" if quiet else ""))
    return content


def _cap(across: Scale, end: float, middle: float, colour: str) -> Markup:
    """The end of an interval; an arrow where it goes on outside of the drawing."""
    x = across.held(end)
    if across.low <= end <= across.high:
        return line(x, middle - 5, x, middle + 5, f"interval {colour}")
    away = 6 if end < across.low else -6
    return tag("path", d=f"M{x + away:.1f} {middle - 5:.1f}L{x:.1f} {middle:.1f}L{x + away:.1f} {middle + 5:.1f}",
               class_=f"interval {colour}")  # fmt: skip


def _legend(headline: Sequence[Comparison]) -> tuple[Key, ...]:
    keys = [Key(key(box(0, 2, 16, 12, "band")), f"declared margin, ±{share_text(headline[0].margin)}")]
    floors = [each.aa_floor for each in headline if each.aa_floor is not None]
    if floors:
        keys.append(Key(key(box(0, 2, 16, 12, "floor")), f"A/A noise floor, ±{share_text(max(floors))}"))
    if any(each.low is not None for each in headline):
        keys.append(Key(key(line(0, 8, 16, 8, "interval quiet-line")), "interval of the effect"))
    return tuple(keys)


def _reading(headline: Sequence[Comparison]) -> str:
    inside = [each for each in headline if each.verdict == "equivalent"]
    outside = [each for each in headline if each.verdict in ("slower", "faster")]
    open_still = [each for each in headline if each.verdict == "cannot_tell"]
    margin = share_text(headline[0].margin)
    parts = []
    if inside:
        lies = "interval of {} lies" if len(inside) == 1 else "intervals of {} lie"
        parts.append(f"the whole {lies.format(_names(inside))} inside the margin of ±{margin}")
    if outside:
        parts += [f"{safe_text(each.level)} is {each.verdict}: {effect_text(each.effect or 0.0)}" for each in outside]
    parts += [f"{safe_text(each.level)} cannot be told: {_why_open(each)}" for each in open_still]
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper() if inside else sentence[:1]}{sentence[1:]}."


def _why_open(each: Comparison) -> str:
    if each.low is None or each.high is None:
        return f"no interval is drawn, n = {each.n} is too small for one"
    if each.low <= 0 <= each.high:
        return "the interval holds zero and leaves the margin"
    return "the effect is no larger than the A/A noise floor"


def _names(comparisons: Sequence[Comparison]) -> str:
    return in_words([safe_text(each.level) for each in comparisons])
