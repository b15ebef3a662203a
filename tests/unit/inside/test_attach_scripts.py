"""Real scripts of every kind, unchanged: what is marked, and that each computes what it did, bit for bit."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from forked_runs import SCRIPTS

from tare.base.host import Exit, LocalHost
from tare.parts.workloads.command import Command
from tare_inside import marks

USUAL = ("fetch", "forward", "backward", "optimiser", "compute", "step")


def usual(steps: int, **others: int) -> dict[str, int]:
    return {**dict.fromkeys(USUAL, steps), "epoch": 1, **others}


def inference(steps: int, epochs: int) -> dict[str, int]:
    return {**dict.fromkeys(("fetch", "inference", "compute", "step"), steps), "epoch": epochs}


def by_hand(steps: int) -> dict[str, int]:
    return dict.fromkeys(("forward", "backward", "compute", "step"), steps)


MARKED = {
    "accumulation.py": usual(8, step=2, optimiser=2),
    "gan.py": usual(4, optimiser=8, backward=8, forward=8),
    "validation.py": usual(8, epoch=2, evaluate=5),
    "iterable.py": usual(8, epoch=2),
    "plain_loop.py": {**by_hand(5), "optimiser": 5},
    "lbfgs.py": usual(2, forward=6, backward=6),
    "scheduled.py": usual(10, fetch=12, epoch=3, compute=12, forward=16, backward=16),
    "mixed_precision.py": usual(4),
    "compiled.py": usual(4),
    "fused.py": usual(12, epoch=3),
    "early_optimiser.py": usual(4),
    "inference.py": inference(8, 2),
    "evaluates_then_trains.py": usual(4, evaluate=2),
    "zipped.py": usual(4, fetch=8, compute=8),
    "forking.py": usual(8),
    "own_marks.py": usual(4, load=1, augment=4),
    "by_hand.py": {**by_hand(8), "fetch": 8, "epoch": 2, "evaluate": 2},
    "compiled_inference.py": inference(4, 1),
}
UNMARKED = {"neither.py": "no-backward"}
ABRUPT = {"exit": 7, "signal": 137, "exception": 1}


@dataclass
class Ran:
    """What one run of a script left."""

    workdir: Path

    def said(self, name: str) -> str:
        return (self.workdir / name).read_text()

    def ended(self) -> tuple[int, str]:
        return int(self.said("code")), self.said("out")

    def state(self) -> object:
        return json.loads(self.said("attach.json"))["state"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, torch_forks: Callable[..., None]) -> Callable[..., Ran]:
    """A script, run with us and without when it is first asked for."""
    folder = tmp_path_factory.mktemp("ran")

    @cache
    def once(*line: str) -> Path:
        torch_forks(folder, [line])
        return folder / " ".join(line)

    return lambda side, *line: Ran(once(*line) / side)


def loaded(workdir: Path) -> list[tuple[int, str, str, int]]:
    found, lost = marks.load(str(workdir / "marks.bin"))
    assert lost == 0
    return found


def intervals(workdir: Path) -> Counter[str]:
    found = loaded(workdir)
    kept = [mark for mark in found if mark[1] not in ("imports", "device")]  # what is marked beside the steps
    begun, ended = (Counter(name for _, name, edge, _ in kept if edge == wanted) for wanted in ("begin", "end"))
    assert begun == ended
    return begun


@pytest.mark.parametrize("script", MARKED)
def test_each_script_is_marked_and_computes_what_it_did(ran: Callable[..., Ran], script: str) -> None:
    plain, attached = ran("plain", script), ran("attached", script)

    assert attached.said("err") == plain.said("err") == ""
    assert attached.ended() == plain.ended()
    assert attached.said("out")
    assert intervals(attached.workdir) == MARKED[script]
    assert attached.state() == "marked"
    numbers = [step for _, name, edge, step in loaded(attached.workdir) if (name, edge) == ("step", "end")]
    assert numbers == list(range(MARKED[script]["step"]))


@pytest.mark.parametrize("script", UNMARKED)
def test_a_script_with_no_steps_that_could_be_told_stays_unmarked(ran: Callable[..., Ran], script: str) -> None:
    attached = ran("attached", script)

    assert attached.ended() == ran("plain", script).ended()
    assert attached.said("err") == ""
    assert "step" not in intervals(attached.workdir)
    assert json.loads(attached.said("attach.json"))["reason"] == UNMARKED[script]


@pytest.mark.parametrize(("how", "code"), ABRUPT.items())
def test_marks_up_to_an_abrupt_end_are_kept_and_so_is_the_exit_code(
    ran: Callable[..., Ran], how: str, code: int
) -> None:
    attached = ran("attached", "abrupt.py", how)

    assert attached.ended() == ran("plain", "abrupt.py", how).ended()
    assert int(attached.said("code")) == code
    assert attached.said("err") == ran("plain", "abrupt.py", how).said("err")
    assert attached.said("err").rstrip().endswith("RuntimeError: mine" if how == "exception" else "")
    assert len([1 for _, name, edge, _ in loaded(attached.workdir) if (name, edge) == ("step", "end")]) == 5


def test_validation_lies_outside_of_every_training_step(ran: Callable[..., Ran]) -> None:
    begun: dict[tuple[str, int], int] = {}
    spans: dict[str, list[tuple[int, int]]] = {"step": [], "evaluate": []}
    for t_ns, name, edge, step in loaded(ran("attached", "validation.py").workdir):
        if edge == "begin":
            begun[name, step] = t_ns
        elif name in spans:
            spans[name].append((begun[name, step], t_ns))

    assert len(spans["evaluate"]) == 5
    for tested in spans["evaluate"]:
        assert not [step for step in spans["step"] if step[0] < tested[1] and tested[0] < step[1]]


Commanded = Callable[..., Exit]


@pytest.fixture
def commanded(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Commanded:
    """Run a command through the `command` workload, where the scripts lie; what it left is in the workdir."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def go(*argv: str) -> Exit:
        command = Command.model_validate({"argv": argv, "cwd": SCRIPTS, "attach": "torch"})
        return LocalHost().spawn(command.job(LocalHost(), workdir, seed=1)).wait(240)

    return go


def test_of_two_distributed_processes_the_first_rank_marks(commanded: Commanded, workdir: Path, tmp_path: Path) -> None:
    ended = commanded(sys.executable, "distributed.py", str(tmp_path))

    assert ended.code == 0, ended.err
    assert "tare" not in ended.err
    assert intervals(workdir) == usual(4)
    assert json.loads((workdir / "attach.json").read_text())["pid"] == int((tmp_path / "rank0.pid").read_text())
    assert len(set(ended.out.split())) == 4


def test_workers_that_import_the_script_again_do_not_mark(commanded: Commanded, workdir: Path) -> None:
    ended = commanded("bash", "-c", f"exec {shlex.quote(sys.executable)} spawned_workers.py")

    assert (ended.code, ended.err) == (0, "")
    assert intervals(workdir) == usual(4)


def test_a_package_behind_a_shell_is_marked_too(commanded: Commanded, workdir: Path) -> None:
    ended = commanded("bash", "-c", f"{shlex.quote(sys.executable)} -m trainer_package; exit 3")

    assert (ended.code, ended.err, len(ended.out.splitlines())) == (3, "", 6)
    assert intervals(workdir) == MARKED["plain_loop.py"]


def test_a_compiled_model_that_only_infers_has_no_more_graphs(ran: Callable[..., Ran]) -> None:
    assert ran("attached", "compiled_inference.py").said("out").splitlines()[-1] == "2 {}"
