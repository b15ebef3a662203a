"""Where a difference lies, from records made to order."""

from __future__ import annotations

import numpy as np
import pytest

from analysis_figures import FakeStore, record
from tare.analysis.weighing import weigh
from tare.records.model import Record

PARTS = {"stall_s": 0.0002, "forward_s": 0.0005, "backward_s": 0.0008, "optimiser_s": 0.0003, "overhead_s": 0.0002}


def trials(platform: str, grown: str | None = None, by_s: float = 0.0, n: int = 10) -> list[Record]:
    rng = np.random.default_rng(len(platform))
    made = []
    for block in range(n):
        noise = float(np.exp(rng.normal(0, 0.005)))
        parts = {part: (value + (by_s if part == grown else 0.0)) * noise for part, value in PARTS.items()}
        metrics = parts | {"compute_s": parts["forward_s"] + parts["backward_s"] + parts["optimiser_s"]}
        made.append(record(platform, block, sum(parts.values()), metrics=metrics))
    return made


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("optimiser_s", "the optimiser step"),
        ("stall_s", "the wait for data"),
        ("backward_s", "the backward pass"),
        ("overhead_s", "the loop around it"),
    ],
)
def test_the_part_that_grew_is_named(part: str, words: str) -> None:
    notes = weigh(FakeStore([*trials("bare"), *trials("docker", part, 0.001)])).notes

    assert words in notes[0]
    assert "takes more than 'bare'" in notes[0]


def test_a_faster_side_is_told_what_it_takes_less() -> None:
    notes = weigh(FakeStore([*trials("bare", "optimiser_s", 0.001), *trials("docker")])).notes

    assert "takes less than 'bare' is in the optimiser step" in notes[0]


def test_nothing_is_blamed_where_nothing_is_surely_different_or_all_grew_alike() -> None:
    same = weigh(FakeStore([*trials("bare"), *trials("docker")])).notes
    slower = [
        record("docker", r.block, r.metrics["step_s"] * 1.5, metrics={k: v * 1.5 for k, v in r.metrics.items()})
        for r in trials("docker")
    ]
    alike = weigh(FakeStore([*trials("bare"), *slower])).notes

    assert not any("takes more" in note for note in (*same, *alike))
