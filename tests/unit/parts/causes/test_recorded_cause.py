"""Whatever both sides recorded is compared key by key, and ruled out only where both were looked at."""

from __future__ import annotations

from typing import Any

import pytest

from tare.parts.causes.recorded import KINDS, Recorded
from tare.parts.causes.variables import DebugVariables
from tare.parts.protocols import NotLooked, RuledOut, Side, Suspicion
from tare.plan.why import examined

LOOKED = {"kernel": "6.1", "resolver.looked": True, "pages.looked": True, "packages.looked": True, "gpu.looked": True}


def side(platform: str = "docker", **facts: Any) -> Side:
    return Side(platform, platform, {}, {**LOOKED, **{key.replace("__", "."): value for key, value in facts.items()}})


@pytest.mark.parametrize(
    ("kind", "slow", "quick", "said"),
    [
        ("name_resolution", {"resolver__ndots": 5}, {"resolver__ndots": 1}, "resolver.ndots 5, 1 on the other side"),
        ("huge_pages", {"pages__enabled": "always"}, {"pages__enabled": "madvise"}, "pages.enabled always, madvise"),
        (
            "packages",
            {"packages__python__numpy": "1.26.4"},
            {"packages__python__numpy": "2.1.0"},
            "numpy 1.26.4, 2.1.0",
        ),
        ("packages", {}, {"packages__system__libjemalloc2": "5.3"}, "libjemalloc2 none, 5.3"),
        ("interpreter", {"python__gil": False}, {"python__gil": True}, "without its lock"),
        ("interpreter", {"python__compiled": "-O0"}, {"python__compiled": "-O3"}, "python.compiled -O0, -O3"),
        ("control_group", {"cgroup__memory_high_bytes": 1 << 29}, {}, "is made to wait"),
        ("clock", {"clock__source": "hpet"}, {"clock__source": "tsc"}, "clock.source hpet, tsc"),
        ("architecture", {"machine": "aarch64"}, {"machine": "x86_64"}, "its code is emulated"),
        ("device", {"device__kernel": "5.4"}, {"device__kernel": "6.1"}, "another kernel"),
        ("gpu_math", {"torch__gpu__tf32": False}, {"torch__gpu__tf32": True}, "TF32"),
        ("mount", {"mount_options__work": "sync"}, {"mount_options__work": "relatime"}, "mount_options.work sync"),
        ("rights", {"process__CapEff": "0"}, {"process__CapEff": "1"}, "other capabilities"),
        ("other", {"novel__setting": "a"}, {"novel__setting": "b"}, "no row of the catalogue knows it"),
    ],
)
def test_a_key_that_differs_is_suspected_and_the_same_one_is_ruled_out(
    kind: str, slow: dict[str, Any], quick: dict[str, Any], said: str
) -> None:
    found = Recorded().suspicions(side(**slow), side(**quick))[kind]

    assert isinstance(found, Suspicion) and said in found.evidence
    assert found.title == KINDS[kind].title and found.untried.endswith(".") and 0 < found.weight <= 1
    same = Recorded().suspicions(side(**slow), side(**slow)).get(kind)
    assert not isinstance(same, Suspicion)
    held = examined(side(**slow), side(**quick)).held
    assert f"recorded:{kind}" in held


def test_what_one_side_alone_recorded_is_not_looked_at_and_never_ruled_out() -> None:
    found = Recorded().suspicions(side(resolver__ndots=5), Side("bare metal", "bare"))

    assert {type(each) for each in found.values()} == {NotLooked}


def test_an_engine_is_absent_of_bare_metal_alone() -> None:
    slow = side("own", place__engine__health_check="yes")

    assert isinstance(Recorded().suspicions(slow, side("bare"))["engine"], Suspicion)
    assert isinstance(Recorded().suspicions(slow, side("runc"))["engine"], NotLooked)


@pytest.mark.parametrize(
    ("facts", "suspects"),
    [({"gpu__devices": 0}, False), ({"torch__threads": 2}, False), ({}, True), ({"torch__gpu__name": "H200"}, True)],
)
def test_a_variable_of_a_gpu_is_no_suspect_where_none_is_used(facts: dict[str, Any], suspects: bool) -> None:
    slow = side(variables={"CUDA_LAUNCH_BLOCKING": "1"}, **facts)
    found = DebugVariables().examine(slow, side(variables={}, **facts))

    assert isinstance(found, Suspicion if suspects else RuledOut)
