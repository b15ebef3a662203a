"""Claims about storage media: what a loader never felt is no evidence; what cannot be told is not said to be so."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from claim_case import STEP, cell
from claim_cases import CASES
from claimed import Cell, answer, stores

MODEL, MEDIUM = "workload.model", "control.storage.emulate"
WORKERS, CACHE = "workload.workers", "control.page_cache.state"
MORE_WORKERS, HIDDEN = "s1.more-workers-help-only-slow-media-or-fast-gpus", "s1.hidden-medium-is-enough"
CACHED, LINEAR = "s1.page-cache-makes-the-medium-irrelevant", "s1.linear-on-fast-media"
OF_MEDIA = (MORE_WORKERS, HIDDEN, CACHED, LINEAR)
SAME = "he media did not differ in speed for this loader, so nothing was measured"
UNSURE = "it depends on whether the media differ in speed for this loader"


def said(claim: str, cells: list[Cell], **how):
    return answer(claim, *stores(cells, **how))


def made(claim: str, model: str = "lenet5") -> list[Cell]:
    """Cells on which the claim holds."""
    cells = CASES[claim].make(CASES[claim].holds)
    return [replace(each, settings={**each.settings, MODEL: model}) for each in cells]


def first_epochs(cells: list[Cell], slower: float = 0.0) -> list[Cell]:
    """The same with an epoch 0 that takes so much longer from all media but the SSD."""
    return [
        replace(
            each,
            metrics={
                name: STEP * (1 + slower * (each.settings[MEDIUM] != "ssd")) if name.startswith("epoch0_") else value
                for name, value in each.metrics.items()
            },
        )
        for each in cells
    ]


@pytest.mark.parametrize("claim", OF_MEDIA)
def test_media_that_the_loader_never_felt_are_no_evidence(claim):
    found = said(claim, first_epochs(made(claim)))

    assert found.word == "not measured"
    assert SAME in found.why
    assert "emulated" not in found.why


@pytest.mark.parametrize("claim", OF_MEDIA)
def test_media_of_which_nobody_can_tell_whether_they_differ_are_not_said_to_be_the_same(claim):
    found = said(claim, first_epochs(made(claim), 0.05), noise=0.1)

    assert found.word != "not measured", found.why


def test_that_a_hidden_medium_is_enough_is_not_told_by_media_that_may_not_differ():
    found = said(HIDDEN, first_epochs(made(HIDDEN)), noise=0.1)

    assert found.word == "undecided"
    assert UNSURE in found.why
    assert UNSURE not in said(HIDDEN, first_epochs(made(HIDDEN), 1.0), noise=0.1).why


@pytest.mark.parametrize("claim", OF_MEDIA)
def test_media_that_differ_for_workers_are_evidence_where_no_trial_is_without(claim):
    cells = [replace(each, settings={**each.settings, WORKERS: 2}) for each in made(claim)]
    if claim == MORE_WORKERS:
        cells = [each for each in made(claim) if each.settings[WORKERS] > 0]

    assert said(claim, cells).word == "holds here"
    assert SAME in said(claim, first_epochs(cells)).why


@pytest.mark.parametrize("claim", [MORE_WORKERS, HIDDEN, LINEAR])
def test_where_no_fetch_can_be_compared_the_claim_decides_by_itself(claim):
    cells = [
        replace(each, metrics={name: value for name, value in each.metrics.items() if not name.startswith("epoch0_")})
        for each in made(claim)
    ]

    found = said(claim, cells)

    assert found.word == "holds here", found.why
    assert UNSURE not in found.why


@pytest.mark.parametrize("claim", OF_MEDIA)
def test_a_model_whose_loader_never_felt_the_medium_is_left_out_beside_one_that_did(claim):
    deaf = first_epochs(made(claim, "vgg11"))

    found = said(claim, [*made(claim), *deaf])

    assert found.word == "holds here", found.why
    assert found.trials
    assert not any("vgg11" in trial for trial in found.trials)


def test_workers_are_judged_where_every_epoch_reads_from_the_medium():
    gains = {("cold", "ssd"): -0.3, ("cold_every_epoch", "hdd"): 0.3}
    cells = [
        cell(
            {MEDIUM: medium, WORKERS: workers, CACHE: state},
            {
                "step_mean_s": STEP * (1 - gains.get((state, medium), 0.0) * (workers > 1)),
                "stall_mean_s": STEP * (1 + (medium == "hdd")),
            },
        )
        for state, medium, workers in product(("cold", "cold_every_epoch"), ("hdd", "ssd"), (0, 1, 4))
    ]

    assert said(MORE_WORKERS, cells).word == "holds here"


def test_epochs_that_find_all_in_memory_do_not_tell_what_workers_do_for_a_medium():
    cold = [replace(each, settings={**each.settings, CACHE: "cold"}) for each in made(MORE_WORKERS)]

    found = said(MORE_WORKERS, cold)

    assert found.word == "not measured"
    assert "reads from the medium in every epoch" in found.why


def test_a_fetch_that_one_worker_hides_says_nothing_against_more_of_them():
    def cells(left: float) -> list[Cell]:
        """One worker leaves this share of the step as stall, and four bring nothing on any medium."""
        return [
            cell(
                {MEDIUM: medium, WORKERS: workers, CACHE: "cold_every_epoch"},
                {"step_mean_s": STEP, "stall_mean_s": STEP * (left if workers else 1 + (medium == "hdd"))},
            )
            for medium, workers in product(("hdd", "ssd"), (0, 1, 4))
        ]

    assert said(MORE_WORKERS, cells(left=0.3)).word == "does not hold here"
    hidden = said(MORE_WORKERS, cells(left=0.003))
    assert hidden.word == "undecided"
    assert "leaves nothing to more of them" in hidden.why


def test_an_emulated_medium_does_not_slow_down_as_data_grow_and_is_no_evidence_that_a_real_one_does_not():
    def cells(medium_factor: str) -> list[Cell]:
        return [
            cell({medium_factor: medium, "workload.items": items}, {"step_mean_s": STEP, "epoch0_step_s": first})
            for medium, first in (("hdd", 2 * STEP), ("ssd", STEP))
            for items in (1000, 4000, 16000)
        ]

    assert said(LINEAR, cells("control.storage.medium")).word == "does not hold here"
    found = said(LINEAR, cells(MEDIUM))
    assert found.word == "undecided"
    assert "an emulated medium is a limit" in found.why


def test_a_level_that_only_another_store_has_does_not_stop_a_trend():
    elsewhere = [
        replace(each, settings={**each.settings, "workload.items": 2000}, store=1) for each in made(LINEAR)[::3]
    ]

    assert said(LINEAR, [*made(LINEAR), *elsewhere]).word == "holds here"


def test_a_medium_that_the_page_cache_hides_is_not_one_that_compute_hides():
    cold = [replace(each, settings={**each.settings, CACHE: "cold"}) for each in made(HIDDEN)]

    assert said(HIDDEN, made(HIDDEN)).word == "holds here"
    found = said(HIDDEN, cold)
    assert found.word == "not measured"
    assert "reads from the medium in every epoch" in found.why
