"""The idle workload: it sleeps, marks what is to be watched, and logs only where it is asked to."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tare.base.host import LocalHost
from tare.parts.find import find
from tare.parts.workloads.idle import Idle
from tare.parts.workloads.null import Null
from tare.studies.load import from_plain
from tare.testing import FakeHost
from tare_inside import marks
from tare_inside.programs import idle


def test_it_is_found_by_its_name_and_a_plain_time_is_its_duration() -> None:
    assert find("workloads", "idle") is Idle
    study = from_plain({"study": "s", "platform": "bare", "workload": {"idle": "10 min"}}, "test")
    (part,) = study.workloads[0].parts()
    assert part == Idle(duration=600.0)
    assert part.units() == 1
    assert part.obstacles(FakeHost()) == []


def test_it_marks_one_step_after_it_has_settled(workdir: Path) -> None:
    job = Idle(duration=0.3, settle=0.2).job(LocalHost(), workdir, seed=1)
    ended = LocalHost().spawn(job).wait(60)
    assert (ended.code, ended.err) == (0, "")
    rows, lost = marks.load(str(workdir / "marks.bin"))
    assert [(name, edge, step) for _, name, edge, step in rows] == [("step", "begin", 0), ("step", "end", 0)]
    assert lost == 0
    assert 0.3 <= (rows[1][0] - rows[0][0]) / 1e9 < 3


def test_logging_reads_on_a_grid_until_the_end(monkeypatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(idle, "look", read.append)
    begin_s = time.monotonic()
    idle.log(0.25, 0.1)
    assert time.monotonic() - begin_s >= 0.25
    assert read == [*idle.LOGGED] * 3


def test_a_file_that_is_not_there_is_nothing_to_log(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("a b\nc\n")
    assert idle.look(str(tmp_path / "two")) == 2
    assert idle.look(str(tmp_path / "none")) == 0


def test_only_with_logging_is_there_a_period(workdir: Path) -> None:
    quiet, logs = (Idle(logging=on).job(FakeHost(), workdir, seed=1).argv[-1] for on in (False, True))
    assert (quiet, logs) == ("0", "0.1")
    assert idle.main(["1"]) == 2


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
