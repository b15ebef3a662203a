"""What `tare doctor` and `tare plan` are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stand_in_parts import Docker, TorchTrain, stand_ins
from tare.base.errors import TareError
from tare.base.rulings import Ruling, obstacle
from tare.plan import check as plan_check
from tare.plan.check import Check, check, possible
from tare.plan.matrix import GUESSED_TRIAL_S, cells
from tare.studies.load import from_plain
from tare.testing import FakeHost


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    with stand_ins():
        yield


def checked(host: FakeHost | None = None, **keys: Any) -> Check:
    made = from_plain({"study": "s", "platform": ["bare", "docker"], "workload": "torch_train"} | keys)
    return check(made, cells(made), host or FakeHost())


def obstructed(**sentences: str) -> FakeHost:
    return FakeHost(files={f"/obstacles/{part}": text for part, text in sentences.items()})


def test_a_device_that_can_do_it_has_no_obstacles() -> None:
    assert checked().blocked == ()


def test_each_part_says_in_its_own_words_why_it_cannot_work() -> None:
    host = obstructed(
        docker="the engine does not answer.\nstart it.", page_cache="this needs root.", cgroup="no cgroups."
    )

    assert [*map(str, checked(host, control={"page_cache": "cold"}).blocked)] == [
        "control page_cache: this needs root.",
        "probe cgroup: no cgroups.",
        "platform docker: the engine does not answer.",
        "platform docker: start it.",
    ]


def test_a_workload_is_asked_too() -> None:
    assert [*map(str, checked(obstructed(torch_train="no torch here.")).blocked)] == [
        "workload torch_train: no torch here."
    ]


def test_each_distinct_part_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Docker] = []
    monkeypatch.setattr(Docker, "obstacles", lambda self, host: asked.append(self) or [])

    checked(platform=["bare", {"docker": {"cpus": [1, 2]}}], workload={"torch_train": {"batch": [16, 64]}})

    assert [part.cpus for part in asked] == [1.0, 2.0]


def test_only_the_outermost_platform_of_a_stack_is_asked_and_that_is_said() -> None:
    found = checked(obstructed(docker="no engine."), platform=["bare", ["qemu", "docker"]])

    assert found.blocked == ()
    (unasked,) = found.unasked
    assert (unasked.code, unasked.subject) == ("plan.inner-platform", "platform qemu+docker")
    assert str(unasked) == "Whether docker works inside qemu shows only once qemu is open."


def test_a_part_that_fails_while_it_looks_is_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Docker, host: object) -> list[str]:
        raise TareError("`docker info` failed with code 1")

    monkeypatch.setattr(Docker, "obstacles", fails)

    assert checked().blocked == (
        Ruling("part.error", "obstacle", "platform docker", "platform docker: `docker info` failed with code 1"),
    )


def test_time_is_a_guess_for_the_fewest_and_for_all_blocks() -> None:
    guess = checked(repeat={"min": 6, "max": 20, "until": "2%"})

    assert (guess.cells, len(guess.trials), guess.least_trials) == (2, 60, 18)
    assert (guess.seconds, guess.least_seconds) == (60 * GUESSED_TRIAL_S, 18 * GUESSED_TRIAL_S)


def test_no_trial_is_thought_to_outlive_its_limit() -> None:
    assert set(checked(limit="2 s").trial_s) == {2.0}


def test_disk_grows_with_trials_probes_and_rate() -> None:
    base = checked(repeat=6).disk_bytes

    assert 0 < base < 100e6
    assert checked(repeat=12).disk_bytes == 2 * base
    assert checked(probes=[]).disk_bytes < base
    assert checked(period="10 ms").disk_bytes > 3 * base
    assert checked(workload={"torch_train": {"epochs": 300}}).disk_bytes > base


def test_too_few_repeats_and_a_lone_cell_are_noted() -> None:
    assert checked(repeat=6).notes == ()
    assert [note.code for note in checked(repeat=5).notes] == ["plan.few-blocks"]
    assert [note.code for note in checked(repeat=6, platform="bare").notes] == ["plan.one-cell"]


@pytest.mark.parametrize(
    ("keys", "blocks", "said"),
    [
        ({}, 7, "Steady state and start-up are corrected together, which takes 7 blocks instead of 6"),
        ({"compare": {"metric": "step_s"}}, 6, None),
        ({"platform": "bare"}, 6, None),
        ({"platform": ["bare", "docker", {"docker": {"cpus": 1}}]}, 8, "4 comparisons are corrected together"),
        ({"workload": {"torch_train": {"batch": [1, 2, 3, 4, 5, 6]}}}, 9, "12 comparisons are corrected together"),
        ({"platform": ["bare", "docker", {"docker": {"cpus": 1}}], "repeat": 6}, 6, "8 blocks reach their confidence"),
    ],
)
def test_a_study_takes_as_many_blocks_as_its_corrected_intervals_need_and_says_why(keys, blocks, said) -> None:
    found = possible(
        from_plain({"study": "s", "platform": ["bare", "docker"], "workload": "torch_train"} | keys), FakeHost()
    )
    notes = [str(note) for note in check(found.study, found.cells, FakeHost()).notes if note.subject == "repeat"]

    assert found.study.repeat.min == blocks
    assert notes == [] if said is None else said in notes[0]


def test_the_trials_come_in_the_order_in_which_they_would_run() -> None:
    found = checked().trials

    assert [(trial.block, trial.position) for trial in found] == [(b, p) for b in range(6) for p in range(3)]


def test_what_would_run_full_is_an_obstacle_before_the_first_trial(tmp_path, monkeypatch):
    meminfo = {"/proc/meminfo": "MemTotal: 900000 kB\nMemAvailable: 90000 kB\n"}
    free = {str(tmp_path): 1 << 20, "/dev/shm": 1 << 10}
    monkeypatch.setattr(
        plan_check.shutil, "disk_usage", lambda path: SimpleNamespace(free=free.get(str(path), 1 << 40))
    )
    found = list(plan_check.room_obstacles(FakeHost(files=meminfo), tmp_path / "out" / "store", 1 << 20))
    assert [each.code for each in found] == ["needs.space"] * 3
    assert f"the disk of {tmp_path} has 1.00 MiB free" in str(found[0])
    assert "/dev/shm has 1.00 KiB free" in str(found[1])
    assert "87.9 MiB of memory are available" in str(found[2])
    free["/dev"] = 10 << 20
    (layers,) = (
        each
        for each in plan_check.room_obstacles(FakeHost(files=meminfo), tmp_path, 0, Path("/dev/no-such-folder"))
        if "until its trial ends" in str(each)
    )
    assert layers.code == "needs.space"
    assert "the disk of /dev has 10.0 MiB free" in str(layers)
    free.clear()
    roomy = FakeHost(files={"/proc/meminfo": "MemAvailable: 9000000 kB\n"})
    assert list(plan_check.room_obstacles(roomy, tmp_path / "store", 1 << 20)) == []


def test_a_run_brings_its_engine_and_no_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = [obstacle("needs.engine", "no engine answers."), obstacle("needs.cores", "64 cores of 2.")]
    monkeypatch.setattr(Docker, "obstacles", lambda self, host: stopped)
    monkeypatch.setattr(Docker, "brought_by_run", classmethod(lambda cls, host: {"engine": "a private one"}))
    made = from_plain({"study": "s", "platform": ["bare", "docker"], "workload": "torch_train"})

    alone, brought = (check(made, cells(made), FakeHost(), brought=each).blocked for each in (False, True))

    assert [*map(str, alone)] == ["platform docker: no engine answers.", "platform docker: 64 cores of 2."]
    assert [*map(str, brought)] == ["platform docker: 64 cores of 2."]


def test_a_program_that_a_platform_does_not_show_is_an_obstacle_before_the_first_trial(monkeypatch):
    shown = []
    monkeypatch.setattr(TorchTrain, "users_program", lambda self, host: Path("/tmp/venv/bin/python"))
    monkeypatch.setattr(Docker, "hides", lambda self, host, program, inputs: shown.append(inputs) or True)

    (found,) = checked().blocked

    assert (found.code, found.subject) == ("needs.program", "platform docker")
    assert "/tmp/venv/bin/python is not there inside docker, which has a folder /tmp of its own" in found.sentence
    assert "`--mount /tmp/venv`" in found.sentence
    assert shown == [()]


def test_an_option_that_cannot_be_set_on_one_side_is_an_obstacle_before_the_first_trial(monkeypatch):
    monkeypatch.setattr(Docker, "options", lambda self: {"--threads": "1"})
    (found,) = checked().blocked
    assert (found.code, found.subject) == ("needs.option", "platform docker")
    assert "`arguments` are for a command or a server, and torch_train is neither" in found.sentence
