"""What `tare papers claims` shows: each claim with its word, its evidence, and how to measure what is not measured."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tare.base.columns import pad, wrap
from tare.base.text import count_text, safe_text
from tare.ext.analysis import grouped, too_few_for_interval
from tare.ext.report import Cell, Figure, ReportData, legend, rows, share_axis, tooltip
from tare.papers.claims.deciding import answers, claims_of, source_of
from tare.papers.claims.model import (
    FAILS,
    HOLDS,
    NOT_MEASURED,
    UNDECIDED,
    Answer,
    Claim,
    figure_words,
    study_of,
)

WORDS = (HOLDS, FAILS, UNDECIDED)
_WORD_WIDTH = 18  # "does not hold here"
_EFFECT_WIDTH = 24  # "+12.3 % [+10.1, +14.2]"


def answers_text(
    found: Sequence[Answer], ready: Collection[str], width: int = 80, scale: str | None = None, *, brief: bool = False
) -> str:
    """The claims that were measured, with their evidence; then those that were not, and what they need.

    `brief`: a line for each claim that was measured, below the trials that it is of.
    `ready` are the names of the studies that can be run; `scale` is that of the studies that were looked at.
    """
    measured = [answer for answer in found if answer.word != NOT_MEASURED]
    others = [answer for answer in found if answer.word == NOT_MEASURED]
    counts = Counter(sorted(answer.word for answer in found))
    lines = [", ".join(_counted(count, word) for word, count in counts.items())]
    for where, its in grouped(measured, lambda answer: answer.where).items() if brief else ():
        lines += ["", *(wrap(f"{safe_text(_first_of(where))}:", width, indent="  ") if where else [])]
        for answer in sorted(its, key=lambda answer: WORDS.index(answer.word)):
            lines += _lines(f"{answer.word}: {answer.statement}, {answer_effect(answer)}", width, "  ")
    for answer in () if brief else measured:
        lines += ["", *_answer(answer, width)]
    if brief:
        left = f"not measured: {count_text(len(others), 'claim')}. " if others else ""
        lines += ["", *_lines(f"{left}`--paper s0` (to s4) has a paper's with their evidence, and what is missing.",
                              width, "")]  # fmt: skip
    elif others:
        lines += ["", "not measured:"]
        for answer in others:
            lines += _lines(f"{answer.id}: {answer.why} {_how(answer.study, ready, scale)}", width, "  ")
    return "\n".join(lines)


def _first_of(where: str) -> str:
    """Of the stores with one device and software the first, and how many more there are."""
    first, *more = where.split("), ")
    return f"{first}) and {count_text(len(more), 'other store')}" if more else first


def claims_text(claims: Sequence[Claim], ready: Collection[str], width: int = 80) -> str:
    """Every claim with its place in the papers and the study that would measure it."""
    lines: list[str] = []
    for claim in claims:
        lines += wrap(claim.statement, width, indent="  ")
        place = _place(claim.paper, claim.section)
        lines += _lines(f"{claim.id}, {place}: {_how(claim.command, ready)}", width, "  ")
    return "\n".join(lines)


def _how(command: str, ready: Collection[str], scale: str | None = None) -> str:
    """What to type, where there is a study to run: at the scale that it takes, or else of what is there already."""
    at_scale = f"{command} --scale {scale}" if scale and " --scale " not in command else command
    return at_scale if study_of(command) in ready else "no ready study for it yet"


def _counted(count: int, word: str) -> str:
    """`1 holds here`, `2 do not hold here`."""
    return f"{count} {word if count == 1 else word.replace('does', 'do').replace('holds', 'hold')}"


def _answer(answer: Answer, width: int) -> list[str]:
    cells = [
        pad(answer.word, _WORD_WIDTH),
        pad(answer_effect(answer), _EFFECT_WIDTH),
        pad(f"n {answer.n}", 6),
        answer_place(answer),
    ]
    return [
        *wrap(safe_text(_told(answer)), width, indent="    "),
        *_lines("  ".join(cells), width, "  ", keep_blanks=True),
        *_lines(f"{answer.why} Rests on {count_text(len(answer.trials), 'trial')}.", width, "  "),
    ]


def _place(paper: str, section: str) -> str:
    """`S1 III-A; S3 5.1.3`: the first paper, unless the section names its own."""
    return section if section.startswith("S3 ") else f"{paper.partition('/')[0]} {section}"


def answer_place(answer: Answer) -> str:
    """Where the papers say it."""
    return _place(answer.paper, answer.section)


def answer_effect(answer: Answer) -> str:
    """`+12.3 % [+10.1, +14.2]`, or what there is of it."""
    if answer.effect is None:
        return "no figure"
    if answer.low is None or answer.high is None:
        return too_few_for_interval(answer.n, paired=True)
    return figure_words(answer.kind, answer.effect, answer.low, answer.high)


def _lines(text: str, width: int, start: str, *, keep_blanks: bool = False) -> Iterable[str]:
    """A text of its own lines, all of them set in."""
    safe = safe_text(text)
    if keep_blanks and len(start) + len(safe) <= width:
        return [start + safe]
    return [start + line for line in wrap(safe, width - len(start), indent="  ")]


LINE = 44  # signs of a line on a telephone
HEIGHT, TEXT = 17, 26  # pixels of a line, and of what stands below the lines
CLAIM_COLOURS = {HOLDS: "@level-3", FAILS: "@level-2", UNDECIDED: "@quiet"}
REACH = 5.0  # effects beyond this stand at the edge: the text says how far they are
_HEADERS = ("take-away", "paper", "here", "effect", "blocks", "why")


def claims_figures(evidence: ReportData) -> list[Figure]:
    """One figure, with a lane for each take-away that was measured; none where none was. Its table has all of them."""
    if evidence.store is None:
        return []
    found = answers(claims_of(), [source_of(evidence.store, name="")])  # the page is of one store
    measured = [answer for answer in found if answer.word != NOT_MEASURED]
    if not measured:
        return []
    counts = Counter(answer.word for answer in found)
    told = ", ".join(_counted(counts[word], word) for word in (*CLAIM_COLOURS, NOT_MEASURED) if counts[word])
    reading = f"Of the papers' {len({answer.id for answer in found})} take-aways: {told}; see `tare papers claims`."
    body = tuple(map(_row, sorted(found, key=lambda answer: answer.word == NOT_MEASURED)))
    return [Figure("claims", "The papers' take-aways, on these trials", reading, _chart(measured), _HEADERS, body)]


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
    lanes: list[dict[str, Any]] = [
        {
            "lane": f"{number} {safe_text(answer.id)}", "text": [*[""] * (most - len(lines)), *lines],
            "told": " ".join(lines),
            "figures": f"{answer.word}: {safe_text(answer_effect(answer))}".replace("-", "\N{MINUS SIGN}"),
            "word": answer.word, "effect": _within(answer.effect), "low": _within(answer.low),
            "high": _within(answer.high), "why": safe_text(answer.why)[:300],
        }
        for number, (answer, lines) in enumerate(zip(measured, wrapped, strict=True))
    ]  # fmt: skip
    used = [word for word in CLAIM_COLOURS if any(lane["word"] == word for lane in lanes)]
    colour = {
        "field": "word",
        "legend": legend(used),
        "scale": {"domain": used, "range": [CLAIM_COLOURS[w] for w in used]},
    }
    ends = [end for lane in lanes for end in (lane["effect"], lane["low"], lane["high"]) if end is not None]
    domain = [min([*ends, -0.05]) * 1.1, max([*ends, 0.05]) * 1.1]
    scale = {"type": "symlog", "constant": 0.1, "domain": domain}
    x = {"type": "quantitative", "scale": scale, "axis": share_axis("difference; narrower far from zero")}
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
    """What is claimed, and of which population where there are several."""
    where = f" ({answer.where})" if answer.where else ""
    return f"{answer.statement}{where}"


def _within(share: float | None) -> float | None:
    return None if share is None else max(-REACH, min(REACH, share))
