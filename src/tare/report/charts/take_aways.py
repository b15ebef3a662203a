"""The papers' take-aways that a store speaks to: does each hold here, by how much, and how sure is that."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tare.analysis.claims.answers import answers
from tare.analysis.claims.model import FAILS, HOLDS, NOT_MEASURED, UNDECIDED, Answer
from tare.analysis.claims.pooling import read_source
from tare.analysis.claims.registry import claims_of
from tare.report.charts.lanes import tooltip
from tare.report.charts.naming import legend
from tare.report.claims import answer_effect, answer_place
from tare.report.drawing import rows
from tare.report.evidence import Evidence
from tare.report.figure import Cell, Figure
from tare.report.words import safe_text

LINE = 44  # signs of a line on a telephone
HEIGHT, TEXT = 17, 26  # pixels of a line, and of what stands below the lines
WORDS = {HOLDS: "@level-3", FAILS: "@level-2", UNDECIDED: "@quiet"}
REACH = 5.0  # effects beyond this stand at the edge: the text says how far they are
_HEADERS = ("take-away", "paper", "here", "effect", "blocks", "why")


def claims_figure(evidence: Evidence) -> Figure | None:
    """A lane for each take-away that was measured; None where none was. The table has all of them."""
    if evidence.store is None:
        return None
    found = answers(claims_of(), [read_source(evidence.store.path)])
    measured = [answer for answer in found if answer.word != NOT_MEASURED]
    if not measured:
        return None
    counts = Counter(answer.word for answer in found)
    told = ", ".join(f"{counts[word]} {word}" for word in (*WORDS, NOT_MEASURED) if counts[word])
    reading = f"Of the papers' {len({answer.id for answer in found})} take-aways: {told}; `tare claims` tells each."
    body = tuple(map(_row, sorted(found, key=lambda answer: answer.word == NOT_MEASURED)))
    return Figure("claims", "The papers' take-aways, on these trials", reading, _chart(measured), _HEADERS, body)


def _row(answer: Answer) -> tuple[Cell, ...]:
    href = "#trials" if answer.trials else ""
    effect = answer_effect(answer) if answer.word != NOT_MEASURED else ""
    n = f"{answer.n:,}" if answer.n else ""
    return (
        Cell(answer.statement), Cell(answer_place(answer)), Cell(answer.word), Cell(effect, href, numeric=True),
        Cell(n, href, numeric=True), Cell(answer.why),
    )  # fmt: skip


def _chart(measured: Sequence[Answer]) -> dict[str, Any]:
    wrapped = [textwrap.wrap(safe_text(_told(answer)), LINE) for answer in measured]
    most = max(map(len, wrapped))
    lanes = [
        {
            "lane": f"{number} {safe_text(answer.id)}", "text": [*[""] * (most - len(lines)), *lines],
            "told": " ".join(lines),
            "figures": f"{answer.word}: {safe_text(answer_effect(answer))}".replace("-", "\N{MINUS SIGN}"),
            "word": answer.word, "effect": _within(answer.effect), "low": _within(answer.low),
            "high": _within(answer.high), "why": safe_text(answer.why)[:300],
        }
        for number, (answer, lines) in enumerate(zip(measured, wrapped, strict=True))
    ]  # fmt: skip
    used = [word for word in WORDS if any(lane["word"] == word for lane in lanes)]
    colour = {"field": "word", "legend": legend(used), "scale": {"domain": used, "range": [WORDS[w] for w in used]}}
    scale = {"type": "symlog", "constant": 0.1, "domain": _domain(measured)}
    x = {"type": "quantitative", "title": None, "scale": scale, "axis": {"format": "+.0%", "tickCount": 5}}
    told = tooltip(told="take-away", figures="here", why="why")
    tall = (most + 1) * HEIGHT + TEXT
    top = -(tall // 2) + 6
    words = {"type": "text", "align": "left", "baseline": "top", "lineHeight": HEIGHT}
    below = top + most * HEIGHT
    return {
        "height": {"step": tall},
        "encoding": {"y": {"field": "lane", "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            {"data": rows(lanes), "mark": {"type": "tick", "color": "@ink", "size": 16, "yOffset": tall // 2 - 12},
             "encoding": {"x": {"datum": 0, **x}}},
            {"data": rows(lanes), "mark": {**words, "dy": top},
             "encoding": {"x": {"value": 0}, "text": {"field": "text"}}},
            {"data": rows(lanes), "mark": {**words, "dy": below, "fontWeight": 600},
             "encoding": {"x": {"value": 0}, "text": {"field": "figures"}, "color": colour}},
            {
                "data": rows([lane for lane in lanes if lane["low"] is not None and lane["high"] is not None]),
                "mark": {"type": "rule", "strokeWidth": 2.5, "yOffset": tall // 2 - 12},
                "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}, "color": colour, "tooltip": told},
            },
            {
                "data": rows([lane for lane in lanes if lane["effect"] is not None]),
                "mark": {"type": "point", "size": 90, "opacity": 1, "yOffset": tall // 2 - 12},
                "encoding": {"x": {"field": "effect", **x}, "color": colour, "tooltip": told},
            },
        ],
    }  # fmt: skip


def _told(answer: Answer) -> str:
    where = f" ({answer.where})" if answer.where else ""
    return f"{answer.statement}{where}"


def _within(share: float | None) -> float | None:
    return None if share is None else max(-REACH, min(REACH, share))


def _domain(measured: Sequence[Answer]) -> list[float]:
    ends = [
        within for answer in measured for end in (answer.effect, answer.low, answer.high)
        if (within := _within(end)) is not None
    ]  # fmt: skip
    return [min([*ends, -0.05]) * 1.1, max([*ends, 0.05]) * 1.1]
