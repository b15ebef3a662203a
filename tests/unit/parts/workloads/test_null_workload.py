from __future__ import annotations

import json
from pathlib import Path

from tare.base.host import LocalHost
from tare.parts.find import find
from tare.parts.workloads.null import Null
from tare.testing import FakeHost


def test_it_is_found_by_its_name_and_works_everywhere() -> None:
    assert find("workloads", "null") is Null
    assert Null().obstacles(FakeHost()) == []
    assert Null().units() is None
    assert Null().inputs() == ()


def test_it_launches_a_program_that_does_nothing() -> None:
    job = Null().job(FakeHost(python="/opt/python"), Path("/workdir"), seed=1)

    assert job.argv[0] == "/opt/python"
    assert job.argv[-2:] == ("--", "true")
    assert not [name for name in job.env if "MALLOC_" in name]


def test_it_runs_and_says_what_it_cost(workdir: Path) -> None:
    ended = LocalHost().spawn(Null().job(LocalHost(), workdir, seed=1)).wait(60)

    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert json.loads((workdir / "result.json").read_text())["wall_s"] > 0
    assert [path.name for path in (workdir / "inside").iterdir()] == ["tare_inside"]
