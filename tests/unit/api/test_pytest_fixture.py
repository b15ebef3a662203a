"""The fixture `tare_weigh`, on callables whose cost is known."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tare.api.pytest_plugin import CannotTell, in_turns, weigh_and_judge


def work(loops: int) -> None:
    sum(range(loops))


def test_a_slower_callable_fails_the_test() -> None:
    with pytest.raises(pytest.fail.Exception, match="new is slower than old"):
        weigh_and_judge(lambda: work(40_000), against=lambda: work(10_000), blocks=8)


def test_a_faster_one_passes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CannotTell)
        found = weigh_and_judge(lambda: work(10_000), against=lambda: work(40_000), blocks=8)
    assert found.verdict == "faster"


def test_with_too_few_blocks_it_says_that_it_cannot_tell() -> None:
    with pytest.warns(CannotTell, match="cannot tell"):
        found = weigh_and_judge(lambda: work(10_000), against=lambda: work(10_000), blocks=3)
    assert found.verdict == "cannot_tell"


def test_both_sides_are_called_equally_often_and_in_both_orders() -> None:
    order: list[str] = []
    in_turns(lambda: order.append("new"), lambda: order.append("old"), 0.05, blocks=8, calls=1)
    assert order.count("new") == order.count("old") == 8
    firsts = order[::2]
    assert {"new", "old"} == set(firsts)


def test_pytest_finds_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(tare_weigh):\n    assert callable(tare_weigh)\n")
    by_name = ["-p", "no:tare", "-p", "tare.api.pytest_plugin"]  # also where the entry point is not installed
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *by_name, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
