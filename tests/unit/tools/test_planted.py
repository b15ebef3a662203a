"""The instrument that counts how often `tare why` is right: who counts as named right, which lines count, the cures."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location("planted", Path(__file__).parents[3] / "tools" / "planted.py")
assert _SPEC is not None
assert _SPEC.loader is not None
planted = sys.modules["planted"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(planted)


def found(named: list[str], *, verdict: str = "slower", explained: bool = True) -> dict[str, Any]:
    answer = {"causes": named, "tried": [], "explained": explained}
    return {"total": {"verdict": verdict, "effect": 1.0}, "phases": [], "suspects": {}, "answer": answer}


@pytest.mark.parametrize(
    ("plant", "named", "word"),
    [
        ("quota", ["cpu_quota"], "right"),
        ("quota", ["cpu_quota", "seccomp"], "wrong"),
        ("quota", [], "cannot tell"),
        ("quota + tracemalloc", ["cpu_quota", "debug_variables"], "right"),
        ("quota + tracemalloc", ["cpu_quota"], "in part"),
        ("nothing", ["seccomp"], "wrong"),
        ("a sleep in the program", ["network"], "wrong"),
    ],
)
def test_right_is_everybody_who_was_planted_and_nobody_else(plant: str, named: list[str], word: str) -> None:
    assert planted.judged(planted.PLANTS[plant], found(named))["judged"] == word


def test_of_what_is_not_in_the_catalogue_it_must_be_said_that_it_is_not_explained() -> None:
    plant = planted.PLANTS["a sleep in the program"]

    assert planted.judged(plant, found([], explained=False))["judged"] == "right"
    assert planted.judged(plant, found([], explained=True))["judged"] == "wrong"


def test_a_line_counts_for_the_plant_that_it_was_made_with_and_not_after_a_mend(tmp_path: Path) -> None:
    line = {"plant": "quota", "judged": "right", "digest": planted.digest(planted.PLANTS["quota"])}
    lines = [line, {**line, "digest": "another"}, {**line, "superseded": "the rule of quotas"}, {**line, "plant": "x"}]
    (tmp_path / "results").write_text("".join(json.dumps(each) + "\n" for each in lines))

    assert planted.counted(tmp_path / "results") == [line]


def test_a_cure_is_applied_as_it_is_printed() -> None:
    given = ["--limit", "cpus=0.1", "--container-env", "A=1", "--container-env", "B=2"]

    assert planted.options_of("env -u A COMMAND...", given, []) == ["--limit", "cpus=0.1", "--container-env", "B=2"]
    assert planted.options_of("more CPU: --cpus N", given, [])[::2] == ["--container-env", "--container-env"]
    assert planted.options_of("-e B=3", given, [])[-1] == "B=3"


def test_a_share_has_its_exact_interval() -> None:
    assert planted.share(190, 200) == "95.0% [91.0%, 97.6%]"
    assert planted.share(0, 200) == "0.0% [0.0%, 1.8%]"
    assert planted.share(0, 0) == "none"
