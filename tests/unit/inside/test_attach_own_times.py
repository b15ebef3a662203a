"""What is marked agrees with the script's own clock, its parts fit into its steps, and it can be ended early."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from forked_runs import SCRIPTS

from scripts_own_times import BEGINS, ENDS, check_own_times, check_parts, check_steps, spans
from tare.base.host import Exit, LocalHost
from tare.parts.workloads.command import Command

UNTOLD = {"in_a_thread": "other-thread", "by_gradients": "grad-only"}
STOPPED = {
    "after steps": ("forever", 'TARE_ATTACH={"stop_after_steps": 9}'),
    "after seconds": ("forever", "0.02", 'TARE_ATTACH={"stop_after_s": 0.3}'),
    "stubborn": ("stubborn", 'TARE_ATTACH={"stop_after_steps": 5}'),
    "never": ("mnist", 'TARE_ATTACH={"stop_after_steps": 1000}'),
    "nonsense": ("closure", 'TARE_ATTACH={"stop_after_steps": "many"}'),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, torch_forks: Callable[..., None]) -> Callable[..., Path]:
    @cache
    def go(*line: str) -> Path:
        folder = tmp_path_factory.mktemp("own")
        torch_forks(folder, [["own_times.py", *line]], "attached")
        return folder / " ".join(("own_times.py", *line)) / "attached"

    return go


@pytest.mark.parametrize("kind", (*ENDS, *BEGINS))
def test_steps_and_times_are_the_scripts_own_and_parts_fit_into_steps(kind: str, ran: Callable[..., Path]) -> None:
    check_steps(ran(kind), kind)


def test_what_an_optimiser_spends_in_its_closure_is_not_its_own(ran: Callable[..., Path]) -> None:
    for kind in ("closure", "lbfgs"):
        found = spans(ran(kind))
        own_ns = [(begin_ns, end_ns) for _, begin_ns, end_ns in found["optimiser"]]
        closures_ns = [(begin_ns, end_ns) for name in ("forward", "backward") for _, begin_ns, end_ns in found[name]]
        assert len(closures_ns) >= 2 * len(found["step"])
        assert all(end_ns <= first or begin_ns >= last for begin_ns, end_ns in own_ns for first, last in closures_ns)


@pytest.mark.parametrize(("kind", "reason"), UNTOLD.items())
def test_where_no_step_is_found_the_reason_is_recorded(ran: Callable[..., Path], kind: str, reason: str) -> None:
    workdir = ran(kind)

    assert ((workdir / "code").read_text(), (workdir / "err").read_text()) == ("0", "")
    said = json.loads((workdir / "attach.json").read_text())
    assert (said["state"], said["reason"]) == ("watched", reason)


@pytest.mark.parametrize(
    ("how", "by", "least", "most"), [("after steps", "steps", 9, 9), ("after seconds", "seconds", 1, 15)]
)
def test_a_script_of_hours_is_ended_cleanly(ran: Callable[..., Path], how: str, by: str, least: int, most: int) -> None:
    workdir = ran(*STOPPED[how])
    steps = spans(workdir)["step"]
    said = json.loads((workdir / "attach.json").read_text())

    assert (workdir / "code").read_text() == "0"
    assert (workdir / "out").read_text().split("\n") == ["finally", "exit handler", ""]
    assert (workdir / "err").read_text() == f"tare: ended after {len(steps)} steps, as requested.\n"
    assert least <= len(steps) <= most
    assert (said["state"], said["stopped"]["by"], said["stopped"]["steps"]) == ("marked", by, len(steps))
    if by == "seconds":
        assert said["stopped"]["after_s"] >= 0.3
        assert all((end_ns - steps[0][1]) / 1e9 < 0.3 for _, _, end_ns in steps[:-1])
    assert json.loads((workdir / "fingerprint.json").read_text())["torch"]


def test_one_that_catches_everything_is_ended_too(ran: Callable[..., Path]) -> None:
    workdir = ran(*STOPPED["stubborn"])

    assert (workdir / "code").read_text() == "0"
    assert (workdir / "out").read_text() == "caught SystemExit\nexit handler\n"
    assert len(spans(workdir)["step"]) == 5


def test_a_script_with_fewer_steps_ends_by_itself(ran: Callable[..., Path]) -> None:
    workdir = ran(*STOPPED["never"])

    assert json.loads((workdir / "out").read_text())["steps"] == 12
    assert "stopped" not in json.loads((workdir / "attach.json").read_text())


def test_settings_that_make_no_sense_leave_the_script_alone(ran: Callable[..., Path]) -> None:
    workdir = ran(*STOPPED["nonsense"])

    assert (workdir / "code").read_text() == "0"
    assert json.loads((workdir / "out").read_text())["steps"] == 6
    assert "TARE_ATTACH" in json.loads((workdir / "attach.json").read_text())["why"]


def torchrun(workdir: Path, env: dict[str, str]) -> Exit:
    """A shell script that calls torchrun, which runs a module in two ranks."""
    line = f'"{sys.executable}" -m torch.distributed.run --standalone --nproc_per_node 2 -m own_times distributed'
    fields = {"argv": ("bash", "-c", line + "\nexit $?"), "cwd": SCRIPTS, "env": {"OMP_NUM_THREADS": "1", **env}}
    return LocalHost().spawn(Command.model_validate(fields).job(LocalHost(), workdir, seed=1)).wait(240)


@pytest.mark.deep  # the next one has the marks of the first rank, and the loops above their times
def test_of_two_ranks_under_torchrun_the_first_is_marked_and_agrees(workdir: Path) -> None:
    ended = torchrun(workdir, {})

    assert ended.code == 0, ended.err
    own = json.loads(ended.out.splitlines()[-1])
    found = spans(workdir)
    assert [step for step, _, _ in found["step"]] == list(range(own["steps"])) == list(range(6))
    check_parts(found)
    check_own_times(found, own, ends=True)


def test_all_ranks_under_torchrun_end_with_the_same_step(workdir: Path) -> None:
    ended = torchrun(workdir, {"TARE_ATTACH": json.dumps({"stop_after_steps": 4})})

    assert ended.code == 0, ended.err
    assert ended.err.count("tare: ended after 4 steps, as requested.") == 1
    found = spans(workdir)
    assert [step for step, _, _ in found["step"]] == list(range(4))
    check_parts(found)
