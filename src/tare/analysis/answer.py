"""The answer to a question as sentences with a subject: of one contrast with its figure, of several by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tare.analysis.model import Comparison, Weighing, Word
from tare.analysis.sentences import (
    begun,
    claim_of,
    comparison_json,
    contrast_sentence,
    figures_of,
    interaction_sentence,
    plain_word,
    sign_within,
    verdict_doubts,
)
from tare.base.text import effect_text, safe_text
from tare.records.model import grouped

MOST_NAMES = 3  # that a sentence can hold
# Two medians and a paired effect are three different figures; from here on a reader notices that they differ.
VISIBLE_GAP = 0.01
VISIBLE_GAP_OF_SIGNS = 0.005
_ORDER: tuple[Word, ...] = ("slower", "faster", "equivalent", "cannot_tell")
_WORKLOAD_AND_PLATFORM = re.compile(r"(.+) (?:in|on) (bare metal|\S+)")


def answer(weighing: Weighing) -> str:
    """What was found, who is what; nothing where nothing is compared."""
    return " ".join(sentences_of(weighing))


def sentences_of(weighing: Weighing) -> Sequence[str]:
    """The answer to the question of the study, else what each word of the contrasts says; the first is the headline."""
    found = weighing.comparisons
    if weighing.headline or len(found) != 1:
        return weighing.headline or several_sentences(found)
    told = [contrast_sentence(found[0])]
    if doubts := _doubted(found):
        told = [f"{told[0].removesuffix('.')} ({'; '.join(doubts)})."]
    decided = [each for each in weighing.tested if each.verdict in ("slower", "faster")]
    for word, its in grouped(decided, lambda each: plain_word(each, each.verdict)).items():
        told.append(f"{word.capitalize()}: {', '.join(each.called for each in its)}.")
    return told


@dataclass(frozen=True)
class Names:
    """What contrasts are called beside each other, without what all of them have."""

    subject: str  # what all levels have and no baseline has; empty where the levels differ in it
    baseline: str
    rest: tuple[str, ...]  # of each contrast


def names_of(found: Sequence[Comparison]) -> Names:
    """`docker`, `bare`, and `batch 16`, `batch 64`."""
    levels, baselines = _parted([each.level for each in found]), _parted([each.against for each in found])
    of_levels, of_baselines = _common(levels), _common(baselines)
    subject = [part for part in of_levels if part not in of_baselines]
    baseline = ", ".join(part for part in of_baselines if part not in of_levels)
    if not baseline:
        against = {each.against for each in found}
        baseline = safe_text(against.pop()) if len(against) == 1 else "the baseline"
    rest = [", ".join(part for part in parts if part not in of_levels) for parts in levels]
    if not all(rest) or len(set(rest)) < len(rest):
        return Names("", baseline, tuple(safe_text(each.level) for each in found))
    return Names(", ".join(subject), baseline, tuple(rest))


def _parted(labels: Sequence[str]) -> list[list[str]]:
    """`LeNet-5 training in docker, 2 workers` as three, where the workload or the platform is in every label."""
    whole = [safe_text(label).split(", ") for label in labels]
    finer = []
    for first, *others in whole:
        both = _WORKLOAD_AND_PLATFORM.fullmatch(first)
        finer.append([*(both.groups() if both else (first,)), *others])
    return finer if len(_common(finer)) > len(_common(whole)) else whole


def _common(several: Sequence[Sequence[str]]) -> list[str]:
    return [part for part in several[0] if all(part in parts for parts in several)]


def several_sentences(found: Sequence[Comparison]) -> list[str]:
    """A sentence for each word that the contrasts have; of one contrast with its figure."""
    if len(found) < 2:
        return [contrast_sentence(each) for each in found]
    names = names_of(found)
    called = dict(zip(((each.level, each.against) for each in found), names.rest, strict=True))
    told = []
    for word in _ORDER:
        for held in grouped([each for each in found if each.verdict == word], sign_within).values():
            its = some_names([called[each.level, each.against] for each in held])
            who, where = (names.subject, f" with {its}") if names.subject else (its, "")
            than = f" than {names.baseline}{where}"
            several = is_plural(names.subject) if names.subject else len(held) > 1 or is_plural(its)
            figures = f"{held[0].called} {range_text(held)}".strip()
            told.append(f"{begun(_claim(held, who, than, several))} ({'; '.join([figures, *_doubted(held)])}).")
    return told


def range_text(found: Sequence[Comparison]) -> str:
    """`-10.3 % [-11.7, -8.0] to -9.4 % [-10.2, -8.6]`: the least and the most of the effects that have an interval."""
    known = sorted((each for each in found if each.low is not None), key=lambda each: each.effect or 0.0)
    return " to ".join(dict.fromkeys(figures_of(each) for each in (known[0], known[-1]))) if known else ""


def is_plural(subject: str) -> bool:
    """Whether a level is a number of things: `2 workers`."""
    number = re.match(r"(\d[\d,.]*) [a-z]+s\b", subject)
    return number is not None and number[1] != "1"


def _claim(held: Sequence[Comparison], who: str, than: str, several: bool) -> str:
    """Of contrasts with one word and, within the margin, one sign."""
    first = held[0]
    if first.verdict == "cannot_tell" and all(each.effect is None for each in held):
        return f"{who} {'were' if several else 'was'} not compared{than.replace(' than ', ' with ', 1)}"
    return claim_of(first, who, than, than.replace(" than ", " as ", 1), several=several)


def _doubted(held: Sequence[Comparison]) -> list[str]:
    """What stands behind a claim in the rows, and of how many of them; why it cannot be told is no doubt."""
    if held[0].verdict == "cannot_tell":
        return []
    doubts = grouped([each for each in held if verdict_doubts(each)], verdict_doubts)
    return [doubt if len(its) == len(held) else f"{len(its)} of {len(held)}: {doubt}" for doubt, its in doubts.items()]


def some_names(names: Sequence[str]) -> str:
    """`a, b and c`, or `a, b, c and 7 more`; with semicolons where names have commas."""
    between = "; " if any("," in name for name in names) else ", "
    if len(names) > MOST_NAMES:
        return f"{between.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    *first, last = names
    return f"{between.join(first)} and {last}" if first else last


def medians_disagree(comparison: Comparison) -> str:
    """A sentence where the two medians alone tell another story than the paired effect; nothing otherwise."""
    ours, theirs = comparison.ours, comparison.theirs
    if comparison.effect is None or ours is None or theirs is None or theirs.value == 0:
        return ""
    alone = ours.value / theirs.value - 1
    other_sign = alone * comparison.effect < 0
    if abs(alone - comparison.effect) < (VISIBLE_GAP_OF_SIGNS if other_sign else VISIBLE_GAP):
        return ""
    paired = "paired block by block, which takes out what drifted between blocks"
    middle = "the middle of all differences between the two sides, not the difference of their medians"
    return (
        f"{safe_text(comparison.level)}: the two medians alone differ by {effect_text(alone)}; "
        f"the effect is {paired if comparison.paired else middle}."
    )


def weighing_json(weighing: Weighing) -> dict[str, Any]:
    """What `tare compare --json` and `tare weigh --json` have of a weighing."""
    return {
        "answer": list(sentences_of(weighing)),
        "comparisons": [comparison_json(each) for each in weighing.comparisons],
        "tested": [comparison_json(each) for each in weighing.tested],
        "interactions": [
            {**asdict(each), "found": comparison_json(each.found), "sentence": interaction_sentence(each)}
            for each in weighing.interactions
        ],
        "marked": [asdict(each) for each in weighing.marked],
        "knees": list(weighing.knees),
    }
