"""The answer in words, and what there is to know about it: of many levels those alike are told together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.model import Comparison, Weighing
from tare.report.charts.naming import level_names, some_of
from tare.report.verdicts import (
    answer_sentence,
    effect_of,
    medians_disagree,
    verdict_doubts,
    verdict_reading,
    verdict_word,
)
from tare.report.words import count_text, safe_text

MOST_ANSWERS = 6  # that fit a first screen, each by itself
MOST_ALIKE = 3  # notes of the same words


@dataclass(frozen=True, slots=True)
class Answer:
    """One verdict, large."""

    level: str
    word: str  # slower, faster, equivalent, cannot_tell: the colour goes by it, the phrase says it
    phrase: str
    doubts: str
    sentence: str
    reading: str


def answers_of(weighing: Weighing) -> list[Answer]:
    """One for each comparison; where there are many, one for each verdict."""
    if len(weighing.comparisons) <= MOST_ANSWERS:
        return [_answer(each) for each in weighing.comparisons]
    names = level_names([each.level for each in weighing.comparisons], weighing.by)
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for each in weighing.comparisons:
        groups.setdefault((each.verdict, verdict_word(each)), []).append(each)
    return [
        Answer(
            level=f"{len(held)} of {count_text(len(weighing.comparisons), 'level')}:",
            word=word,
            phrase=phrase,
            doubts="",
            sentence=some_of([f"{names[each.level]} {effect_of(each)}".strip() for each in held]) + ".",
            reading="",
        )
        for (word, phrase), held in groups.items()
    ]


def _answer(comparison: Comparison) -> Answer:
    return Answer(
        level=comparison.level,
        word=comparison.verdict,
        phrase=verdict_word(comparison),
        doubts=verdict_doubts(comparison),
        sentence=answer_sentence(comparison),
        reading=verdict_reading(comparison),
    )


def notes_of(weighing: Weighing) -> list[str]:
    """All notes; where many levels have the same one, it is told once, with some of their names."""
    told = [sentence for each in weighing.comparisons if (sentence := medians_disagree(each))]
    told += [safe_text(note) for each in weighing.comparisons for note in each.notes]
    unique = list(dict.fromkeys([*told, *map(safe_text, weighing.notes)]))
    return _together(unique, {safe_text(each.level): each.level for each in weighing.comparisons}, weighing.by)


def _together(notes: Sequence[str], levels: dict[str, str], by: str) -> list[str]:
    names = level_names(levels.values(), by)
    groups: dict[str, list[tuple[str, str]]] = {}  # the note without its level -> the level, and the whole note
    for note in notes:
        level, colon, rest = note.partition(": ")
        about = level if colon and level in levels else ""
        groups.setdefault(rest if about else note, []).append((about, note))
    found: list[str] = []
    for rest, held in groups.items():
        if len(held) <= MOST_ALIKE or not all(about for about, _ in held):
            found += [note for _, note in held]
        else:
            found.append(f"{some_of([names[levels[about]] for about, _ in held])}: {rest}")
    return found
