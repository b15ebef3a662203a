"""Which trials are suspect in a way that can bias a comparison, and whether a word hangs on them.

What all sides share alike is a note about the run. What one side has and the other has not is a mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tare.analysis import sentences
from tare.analysis.compare import judge
from tare.analysis.model import Comparison, Marked
from tare.analysis.selection import Selection
from tare.base.rulings import LEGACY, Ruling
from tare.records.model import Record
from tare.records.trials import grouped

WATCHED = frozenset({"gpu.power-limit"})  # notes of a trial that can bias a comparison if one side alone has them
ALIKE = 0.5  # the side that has it less often has it at least this often, as a share of the other


@dataclass(frozen=True)
class Doubts:
    """What there is to say of the marks of a selection's trials."""

    marked: tuple[Marked, ...] = ()
    notes: tuple[str, ...] = ()  # of the run as a whole
    unlike: Mapping[str, tuple[Ruling, ...]] = field(default_factory=dict)  # level -> what it does not share


def doubts(selected: Selection, judged: Sequence[Comparison]) -> Doubts:
    """The marks of the trials that are compared, told apart into those that all sides share and those that differ."""
    first = [record for record in selected.used if not record.twin]
    levels = grouped(first, selected.label.label)
    codes = {code: _shares(levels, code) for code in dict.fromkeys(code for record in first for code in _codes(record))}
    shared = {code for code, shares in codes.items() if _is_alike(shares.values())}
    biased = {record.trial for record in first if record.state == "suspect" and not _suspect_codes(record) <= shared}
    notes = [_shared_note(code, first) for code in codes if code in shared]
    marked = _marked(selected, levels, judged, biased)
    if marked:
        notes.append(sentences.marked_sentence(marked, judged))
    unlike = {each.level: _unlike(each, codes, shared) for each in judged}
    return Doubts(marked, tuple(notes), unlike)


def _suspect_codes(record: Record) -> set[str]:
    """What a suspect trial is marked for; a sentence of before there were codes stands for itself."""
    if record.state != "suspect":
        return set()
    return {each.code if each.code != LEGACY else each.sentence for each in record.reasons} or {"not recorded"}


def _codes(record: Record) -> set[str]:
    return _suspect_codes(record) | {each.code for each in record.notes if each.code in WATCHED}


def _shares(levels: Mapping[str, Sequence[Record]], code: str) -> dict[str, float]:
    return {level: sum(code in _codes(each) for each in trials) / len(trials) for level, trials in levels.items()}


def _is_alike(shares: Iterable[float]) -> bool:
    found = list(shares)
    return len(found) > 1 and min(found) >= ALIKE * max(found) > 0


def _shared_note(code: str, records: Sequence[Record]) -> str:
    having = [record for record in records if code in _codes(record)]
    told = [str(each) for each in (*having[0].reasons, *having[0].notes) if each.code == code]
    return sentences.shared_condition(code, len(having), len(records), *told[:1])


def _marked(
    selected: Selection, levels: Mapping[str, Sequence[Record]], judged: Sequence[Comparison], biased: set[str]
) -> tuple[Marked, ...]:
    if not biased:
        return ()
    kept = [record for record in selected.used if record.trial not in biased]
    asked = selected.request
    again = judge(
        selected.family(used=kept), margin=asked.margin, metric=selected.metric, alpha=asked.alpha, resamples=0,
        rises=asked.rises,
    )  # fmt: skip
    words = {each.level: each.verdict for each in again if each.low is not None}
    compared = {name for each in judged for name in (each.level, each.against)}
    judged_levels = {each.level for each in judged}
    return tuple(
        Marked(
            level,
            sum(record.trial in biased for record in trials),
            len(trials),
            words.get(level) if level in judged_levels else None,
        )
        for level, trials in levels.items()
        if level in compared
    )


def _unlike(found: Comparison, codes: Mapping[str, Mapping[str, float]], shared: set[str]) -> tuple[Ruling, ...]:
    made = []
    for code, shares in codes.items():
        ours, theirs = shares.get(found.level), shares.get(found.against)
        if code in shared or ours is None or theirs is None or ours == theirs:
            continue
        sentence = (
            f"{code}: {ours:.0%} of the trials of {found.level!r} and {theirs:.0%} of those of {found.against!r} are "
            "marked, so a difference may come from that."
        )
        made.append(Ruling("compare.unlike-conditions", "note", found.level, sentence))
    return tuple(made)
