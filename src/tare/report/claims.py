"""What `tare claims` shows: each take-away with its word, its evidence, and how to measure what is not measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tare.analysis.claims.model import NOT_MEASURED, Answer, Claim, is_ready
from tare.analysis.claims.telling import figure_words
from tare.analysis.sentences import too_few_for_interval
from tare.report.columns import pad, wrap
from tare.report.words import count_text, safe_text

_WORD_WIDTH = 18  # "does not hold here"
_EFFECT_WIDTH = 24  # "+12.3 % [+10.1, +14.2]"


def answers_text(found: Sequence[Answer], ready: Collection[str], width: int = 80, scale: str | None = None) -> str:
    """The claims that were measured, a few lines each; then those that were not, and what they need.

    `ready` are the names of the studies that can be run; `scale` is that of the studies that were looked at.
    """
    measured = [answer for answer in found if answer.word != NOT_MEASURED]
    others = [answer for answer in found if answer.word == NOT_MEASURED]
    lines = [_summary(found)]
    for answer in measured:
        lines += ["", *_answer(answer, width)]
    if others:
        lines += ["", "not measured:"]
        for answer in others:
            lines += _lines(f"{answer.id}: {answer.why} {_how(answer.study, ready, scale)}", width, "  ")
    return "\n".join(lines)


def claims_text(claims: Sequence[Claim], ready: Collection[str], width: int = 80) -> str:
    """Every claim with its place in the papers and the study that would measure it."""
    lines: list[str] = []
    for claim in claims:
        lines += wrap(claim.statement, width, indent="  ")
        place = _place(claim.paper, claim.section)
        lines += _lines(f"{claim.id}, {place}: {_how(claim.command, ready)}", width, "  ")
    return "\n".join(lines)


def _how(command: str, ready: Collection[str], scale: str | None = None) -> str:
    """What to type, where there is a study to run: at the scale of what is there already."""
    at_scale = f"{command} --scale {scale}" if scale else command
    return at_scale if is_ready(command, ready) else "no ready study for it yet"


def _summary(found: Sequence[Answer]) -> str:
    words = [answer.word for answer in found]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(sorted(words)))


def _answer(answer: Answer, width: int) -> list[str]:
    where = f" ({answer.where})" if answer.where else ""
    cells = [
        pad(answer.word, _WORD_WIDTH),
        pad(answer_effect(answer), _EFFECT_WIDTH),
        pad(f"n {answer.n}", 6),
        answer_place(answer),
    ]
    return [
        *wrap(safe_text(f"{answer.statement}{where}"), width, indent="    "),
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
