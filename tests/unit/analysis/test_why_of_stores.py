"""Two stores as the sides of a `why`, from records made to order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis_figures import record
from tare.analysis.why.stores import is_here, pair
from tare.base.errors import StudyError

DEVICE = {"cpu": "A", "cores": 2, "machine": "aarch64", "memory_bytes": 1 << 34, "kernel": "6.1"}


def store(step_s: float, *, kernel: str = "6.1", argv: str = "train.py", quota: float | None = None):
    return [
        record(
            "runc", block, step_s=None,
            metrics={"step_mean_s": step_s * (1 + block / 1000), "steps": 10.0, "wall_s": 1.0},
            settings={"platform": "runc", "platform.quota": quota, "workload": "command", "workload.argv": argv},
            facts={"device": {**DEVICE, "kernel": kernel}, "inside": {"libc": "glibc 2.36"}},
        )
        for block in range(8)
    ]  # fmt: skip


def test_the_slower_store_is_found_whichever_comes_first_and_what_differs_is_told():
    stores = {"monday": store(0.01), "today": store(0.02, kernel="6.2", quota=0.5)}

    for order in (stores, dict(reversed(stores.items()))):
        found = pair(order, margin=0.05)

        assert (found.slow, found.quick) == ("today", "monday")
        assert found.total.verdict == "slower"
        assert found.total.effect == pytest.approx(1.0, abs=0.02)
        assert found.device == {"kernel": ("6.2", "6.1")}
        assert found.settings == {"platform.quota": (0.5, None)}


def test_a_built_in_workload_is_called_by_its_title():
    settings = {"workload": "generate", "workload.batch": 4, "workload.size": "small", "workload.weights": None}
    settings |= {"platform": "runc"}
    stores = {
        name: [
            replace(each, settings=settings, facts={**each.facts, "title": "GPT-2 (124 M) generation, batch 4"})
            for each in store(step_s)
        ]
        for name, step_s in (("monday", 0.01), ("today", 0.02))
    }

    assert pair(stores, margin=0.05).side == "runc, GPT-2 (124 M) generation, batch 4"
    assert pair({"monday": store(0.01), "today": store(0.02)}, margin=0.05).side == "runc, command train.py"


def test_stores_of_other_programs_are_not_compared():
    with pytest.raises(StudyError, match="no platform with the same workload"):
        pair({"one": store(0.01), "two": store(0.02, argv="other.py")}, margin=0.05)


def test_stores_whose_commands_differ_in_an_option_are_compared_and_the_option_is_told():
    found = pair({"one": store(0.01, argv="app --threads 1"), "two": store(0.02, argv="app --threads 16")}, margin=0.05)

    assert (found.slow, found.side) == ("two", "runc, command app")
    assert found.settings == {"workload.argv": ("app --threads 16", "app --threads 1")}


def test_a_store_of_another_device_is_not_tried_here():
    assert is_here(store(0.01), DEVICE)
    assert not is_here(store(0.01), {**DEVICE, "cores": 64})
