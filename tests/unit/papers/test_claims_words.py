"""Every claim: a store on which it holds, one on which it fails, and one on which it cannot be told."""

from __future__ import annotations

import pytest
from claim_case import MODELS
from claim_cases import CASES, Case
from claimed import answer, stores

from tare.papers.claims.deciding import every_claim

IDS = [claim.id for claim in every_claim()]


def said(claim: str, case: Case, x: float, **how):
    return answer(claim, *stores(case.make(x), case.study, **how))


@pytest.mark.parametrize("claim", IDS)
def test_a_claim_holds_where_it_is_so(claim):
    found = said(claim, CASES[claim], CASES[claim].holds)

    assert found.word == "holds here", found.why
    assert found.low is not None and found.low <= found.effect <= found.high
    assert found.n >= 6
    assert found.trials
    assert found.study.startswith("tare run s")
    assert not any(name in found.why for name in MODELS), "networks are called by their titles"
    assert "the same" not in found.why.lower(), "the check that it would refer to may come later"


@pytest.mark.parametrize("claim", IDS)
def test_a_claim_fails_where_it_is_not_so(claim):
    found = said(claim, CASES[claim], CASES[claim].fails)

    assert found.word == "does not hold here", found.why
    assert found.low is not None


@pytest.mark.parametrize("claim", IDS)
def test_a_claim_is_undecided_where_noise_hides_it(claim):
    case = CASES[claim]
    found = said(claim, case, case.between, noise=case.noise, seed=case.seed)

    assert found.word == "undecided", found.why
    assert found.low is not None, "an interval, but one that does not tell"
    assert "undecided: " in found.why and "more" in found.why


@pytest.mark.parametrize("claim", IDS)
def test_a_claim_is_undecided_where_there_are_too_few_blocks(claim):
    found = said(claim, CASES[claim], CASES[claim].holds, n=3)

    assert found.word == "undecided", found.why
    assert found.low is None


@pytest.mark.parametrize("claim", IDS)
def test_a_claim_that_nothing_speaks_to_is_not_measured_and_says_what_is_missing(claim):
    found = answer(claim, *stores([]))

    assert found.word == "not measured"
    assert len(found.why.split()) > 3
    assert found.effect is None and found.trials == ()
