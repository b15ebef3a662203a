from __future__ import annotations

from typing import Any

import pytest

from tare.trial.rules import cold_epochs_trouble

ASKED = {"controls": {"page_cache": {"state": "cold_every_epoch", "paths": ["/data"]}}}


def facts(shares: list[float | None] | None) -> dict[str, Any]:
    return ASKED if shares is None else ASKED | {"cold_epochs": {"shares": shares, "seconds": [0.1] * len(shares)}}


def test_epochs_that_began_cold_are_no_trouble():
    assert list(cold_epochs_trouble(facts([0.0, 0.0, 0.01]))) == []


@pytest.mark.parametrize(
    ("shares", "code", "said"),
    [
        (None, "cache.no-epoch", "no pass over the data was detected"),
        ([], "cache.no-epoch", "no pass over the data was detected"),
        ([0.0, None], "cache.unknown", "did not report"),
        ([0.0, 0.02, 0.0], "cache.warm", "2.0% of the data set was still in memory when epoch 1 began"),
    ],
)
def test_one_epoch_that_was_not_cold_is_enough(shares, code, said):
    (ruling,) = cold_epochs_trouble(facts(shares))
    assert (ruling.code, ruling.weight) == (code, "invalid")
    assert said in ruling.sentence


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_who_did_not_ask_hears_nothing(state):
    assert list(cold_epochs_trouble({"controls": {"page_cache": {"state": state}}})) == []
    assert list(cold_epochs_trouble({})) == []
