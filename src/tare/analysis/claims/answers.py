"""Every claim on every population: what `tare claims` prints."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.claims.deciding import decide
from tare.analysis.claims.model import NOT_MEASURED, Answer, Claim
from tare.analysis.claims.pooling import Pool, Source, parts, pools


def answers(claims: Sequence[Claim], sources: Sequence[Source]) -> list[Answer]:
    """One answer a claim; where populations differ, one for each that has something to say about it."""
    found_parts = parts(sources)
    together = Pool(tuple(found_parts)).evidence()  # for claims that compare devices or software with each other
    populations = [(pool.evidence(), pool.name) for pool in pools(found_parts)]
    named = len(populations) > 1
    found: list[Answer] = []
    for claim in claims:
        if claim.across:
            found.append(decide(claim, together))
            continue
        each = [decide(claim, evidence, name if named else "") for evidence, name in populations] or [
            decide(claim, together)
        ]
        found += [answer for answer in each if answer.word != NOT_MEASURED] or each[:1]
    return found
