"""The GPU lines of a verdict, and what they say of what binds a workload."""

from __future__ import annotations

from dataclasses import replace

import pytest

import some_weighings
from some_weighings import estimate
from tare.analysis.resources.bottlenecks import binds
from tare.report.text.verdict import verdict_text

MEDIANS = {
    "gpu_busy_share": 0.625,
    "gpu_idle_share": 0.352,
    "gpu_launch_share": 0.30,
    "gpu_sync_share": 0.05,
    "gpu_data_share": 0.002,
    "gpu_memory_bytes": 11.2 * 2**30,
    "gpu_power_w": 412.0,
    "energy_gpus_step_j": 5.36,
    "energy_bound_share": 0.041,
    "gpu_syncs": 2.0,
    "gpu_pageable_copies": 0.0,
}


def told(width: int = 200, **changes: float) -> str:
    figures = {name: estimate(value) for name, value in (MEDIANS | changes).items()}
    weighing = replace(some_weighings.normal().weighing, medians={"bare": figures, "docker": figures})
    return verdict_text(weighing, width, verbose=True)


def test_each_level_has_a_line_with_busy_memory_power_and_energy():
    lines = [line for line in told().splitlines() if line.startswith("GPU, ")]
    assert [line.split(":")[0] for line in lines] == ["GPU, bare", "GPU, docker"]
    for part in ("busy 62.5 % [61.9, 63.1]", "11.2 GiB", "412 W [408, 416]", "5.36 J", "per step", "launch-bound"):
        assert part in lines[0]
    assert "(within 4.1 %)" in lines[0]


def test_a_long_name_has_a_line_of_its_own_and_the_order_is_that_of_the_table():
    normal = some_weighings.normal().weighing
    long = "MobileNetV3-L training, page cache cold in every epoch"
    figures = {name: estimate(value) for name, value in MEDIANS.items()}
    (first, *_) = normal.comparisons
    both = replace(normal, comparisons=(replace(first, level=long),), medians={long: figures, first.against: figures})
    lines = verdict_text(both, 80, verbose=True).splitlines()
    at = lines.index(f"GPU, {long}:")
    assert lines[at + 1].startswith("  busy 62.5 % [61.9, 63.1]  idle")
    assert lines.index(f"GPU, {first.against}:") < at


def test_what_to_change_is_said_once_and_calls_that_wait_are_counted():
    text = told()
    assert text.count("use torch.compile or CUDA graphs") == 1
    assert "each step has 2 calls that wait for the GPU" in text
    assert "pageable" not in text
    assert "pageable" in told(gpu_pageable_copies=2.0)


def test_a_run_without_a_gpu_has_no_such_line():
    assert "GPU" not in verdict_text(some_weighings.normal().weighing, 200, verbose=True)


def test_no_line_is_wider_than_the_terminal():
    assert all(len(line) <= 60 for line in told(60).splitlines())


@pytest.mark.parametrize(
    ("shares", "word"),
    [
        ({"gpu_busy_share": 0.976, "gpu_launch_share": 0.001}, "gpu"),
        ({"gpu_busy_share": 0.3, "gpu_data_share": 0.6, "gpu_launch_share": 0.1}, "data"),
        ({"gpu_busy_share": 0.6, "gpu_copying_share": 0.4, "gpu_launch_share": 0.3}, "copy"),
        ({"gpu_memory_bytes": 1.0}, None),
    ],
)
def test_the_word_is_of_what_the_gpu_waited_for_most(shares, word):
    assert binds(shares) == word
