"""The claims of a paper as its page tells them: a word a machine, and below it what the word rests on.

Apart from claims.py, which every report needs: a report does not import the papers' tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tare.base.text import count_text, safe_text
from tare.papers.claims.model import COUNTED, NOT_MEASURED, Answer, Word
from tare.papers.pages.notes import Note, Notes, not_here, notes_of, reason_notes, where_notes, where_text
from tare.papers.tables.rows import NOT_HERE, WORDS, Answered
from tare.records.trials import collected, grouped

_MIXED = "mixed"
_COUNTED: Mapping[Word, tuple[str, str]] = {**COUNTED, NOT_MEASURED: (NOT_HERE, NOT_HERE)}
_COUNTED_MIXED = ("differs between its populations", "differ between their populations")


def by_claim(found: Answered) -> dict[str, list[tuple[str, Answer]]]:
    """Every claim, with what each machine says of it."""
    told = [(machine, answer) for machine, answers in found.claims.items() for answer in answers]
    return grouped(told, lambda pair: pair[1].id)


def summary_texts(found: Answered) -> list[str]:
    """`cpu2: of 9 take-aways, 0 hold, 1 does not hold, 0 undecided, 8 not measured here`; a line a machine."""
    return [safe_text(f"{machine}: {_paper_claims_summary(answers)}") for machine, answers in found.claims.items()]


def _paper_claims_summary(answers: Sequence[Answer]) -> str:
    claims = grouped(answers, lambda answer: answer.id)
    words = [{answer.word for answer in several} for several in claims.values()]
    counts = Counter(next(iter(each)) if len(each) == 1 else _MIXED for each in words)
    told = [count_text(counts[word], *forms) for word, forms in _COUNTED.items()]
    told += [count_text(counts[_MIXED], *_COUNTED_MIXED)] if counts[_MIXED] else []
    return f"of {count_text(len(words), 'take-away')}, {', '.join(told)}"


def claim_notes(found: Answered) -> Notes:
    """Every letter of the claims: reasons that they were not measured, and populations with long names."""
    met: list[Note] = []
    for mine in by_claim(found).values():
        for _, answer in mine:
            met += reason_notes(answer.why) if answer.word == NOT_MEASURED else where_notes([answer.where])
    return notes_of(met)


def claim_text(answer: Answer, notes: Notes) -> str:
    """`holds. Fetch stall, one worker against none: -84.4 % [-85.5, -83.8] over 6 blocks, should fall ...`."""
    if answer.word == NOT_MEASURED:
        return not_here(answer.why, notes)
    return safe_text(f"{WORDS[answer.word]}{where_text(answer.where, notes)}. {answer.why}")


def words_text(answers: Sequence[Answer], notes: Notes) -> str:
    """One word, and a letter for why there is none; where a machine has several populations, one of each."""
    return ", ".join(
        not_here(answer.why, notes) if answer.word == NOT_MEASURED else WORDS[answer.word] for answer in answers
    )


def evidence(found: Answered, notes: Notes) -> dict[str, list[tuple[str, str]]]:
    """Statement -> what each machine that has measured it rests its word on."""
    return collected(
        (answer.statement, (machine, claim_text(answer, notes)))
        for answers in by_claim(found).values()
        for machine, answer in answers
        if answer.word != NOT_MEASURED
    )
