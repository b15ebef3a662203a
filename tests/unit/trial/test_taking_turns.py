"""Turns of real processes over real FIFOs, stopped by signals: who runs when, and who is told to have ended."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tare.base.errors import TrialError
from tare.base.host import Job, LocalHost
from tare.base.secrets import Scrubber
from tare.plan.turning import Turning
from tare.trial.tenants import Grants, Tenant
from tare.trial.turns import Alternation, Side, _OneFailed

SRC = Path(__file__).parents[3] / "src"
PROGRAM = """
import os, sys, time
from tare_inside import turns
folder, steps, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if what in ("never", "stillborn"):
    sys.exit(what == "stillborn")
if what == "starts":
    time.sleep(600)
mine, log = turns.joined(folder), open(os.path.join(folder, "log"), "w", 1)
for step in range(steps):
    begin = time.monotonic_ns()
    time.sleep(0.001)
    print(begin, time.monotonic_ns(), file=log)
    if what == "leaves" and step == steps // 2:
        sys.exit(0)
    if what == "fails" and step == steps // 2:
        sys.exit(3)
    if what == "dies" and step == steps // 2:
        os.kill(os.getpid(), 9)
    if what == "boasts" and step == 7:
        step += 50
    mine.stepped(step + 1)
"""


@dataclass
class State:
    """What an alternation asks of a trial's state."""

    facts: dict[str, Any] = field(default_factory=dict)
    marks: list[Any] = field(default_factory=list)
    scrubber: Scrubber = field(default_factory=Scrubber)
    partner: Any = None
    partners_cpu_s: float = 0.0

    def grew(self, channel: str) -> float:
        return 0.0


class Sides:
    """Two sides, each with a work folder and a program; what stops them is a signal."""

    def __init__(self, folder: Path, stack: ExitStack, whats: tuple[str, ...], steps: int, limit_s: float) -> None:
        self.host = LocalHost()
        self.errors: list[Exception] = []
        self.all: list[Side] = []
        for number, what in enumerate(whats):
            name = f"tare-turns-{os.getpid()}-{folder.name}-{number}"
            workdir = folder / str(number)
            workdir.mkdir()
            argv = (sys.executable, "-c", PROGRAM, str(workdir), str(steps), what)
            job = Job(argv, {"PYTHONPATH": str(SRC), "TARE_SITE": name}, str(workdir))
            tenant = Tenant(SimpleNamespace(), self.host, workdir, job)  # type: ignore[arg-type]
            trial = SimpleNamespace(
                limit_s=limit_s,
                settings={"platform": f"p{number}"},
                block=number,
                cell=SimpleNamespace(workload=SimpleNamespace(part_name=lambda: "command")),
            )
            run = SimpleNamespace(
                name=name, trial=trial, state=State(), bench=SimpleNamespace(host=self.host, heard=None),
                failed=self.errors.append,
            )  # fmt: skip
            side = Side(run, SimpleNamespace(measured=tenant), len(whats), stack)  # type: ignore[arg-type]
            side.freezer = Stopping(side)  # type: ignore[assignment]
            self.all.append(side)

    def alternate(self, turning: Turning) -> Alternation:
        made = Alternation(self.all, turning, random.Random(1))
        with suppress(_OneFailed):
            made.run(None)
        made.note()
        return made

    def log(self, number: int) -> list[tuple[int, int]]:
        text = (self.all[number].opened.measured.workdir / "log").read_text()
        return [(int(begin), int(end)) for begin, end in map(str.split, text.splitlines())]


class Stopping:
    """Stops the one process of a side."""

    way = "SIGSTOP"

    def __init__(self, side: Side) -> None:
        self._side = side

    def _signal(self, number: int) -> None:
        process = self._side.process._process
        with suppress(ProcessLookupError):
            if process is not None and not self._side.over:
                os.kill(process._child.pid, number)  # type: ignore[attr-defined]

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Callable[..., Sides]]:
    with ExitStack() as stack:
        yield lambda *whats, steps=60, limit_s=60.0: Sides(tmp_path, stack, whats, steps, limit_s)


TURNING = Turning(steps=10, count=4, warm=5)


def test_turns_do_not_overlap_and_both_do_as_many_steps(sides: Callable[..., Sides]) -> None:
    made = sides("runs", "runs")
    turns = made.alternate(TURNING)
    assert turns.done == 4
    assert not made.errors
    logs = [made.log(number) for number in (0, 1)]
    assert [len(log) for log in logs] == [60, 60]
    in_turns = [log[6:46] for log in logs]
    spans = sorted((log[at][0], log[at + 9][1]) for log in in_turns for at in range(0, 40, 10))
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    for side, log in zip(made.all, logs, strict=True):
        told = side.run.state.facts["turns"]
        assert (told["done"], told["count"], told["steps"], len(told["windows_ns"])) == (4, 4, 10, 7)
        assert sorted(set(told["order"])) in ([0, 1], [0], [1])
        for place, (begin, end) in enumerate(told["windows_ns"][2:6]):
            steps = log[6 + 10 * place : 16 + 10 * place]
            assert begin <= steps[0][0]
            assert steps[-1][1] <= end
    assert [a + b for a, b in zip(*(side.order for side in made.all), strict=True)] == [1] * 4
    starts = sorted((side.windows[0][0], side.windows[1][1]) for side in made.all)
    assert starts[0][1] <= starts[1][0], "a side starts and warms up while nobody else runs"


def test_sides_that_start_at_the_same_time_take_turns_after_that(sides: Callable[..., Sides]) -> None:
    made = sides("runs", "runs")
    turns = made.alternate(replace(TURNING, together=True))
    assert turns.done == 4
    assert not made.errors
    starts = [side.windows[0] for side in made.all]
    assert max(begin for begin, _ in starts) < min(end for _, end in starts)
    spans = sorted(window for side in made.all for window in side.windows[1:6])
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans)), "warm-ups and turns are one after the other"
    assert [len(made.log(number)) for number in (0, 1)] == [60, 60]


@pytest.mark.parametrize(("what", "is_failed"), [("ends", False), ("fails", True)])
def test_who_ends_while_both_start_takes_the_other_with_it(
    sides: Callable[..., Sides], what: str, is_failed: bool
) -> None:
    made = sides("runs", "never" if what == "ends" else "stillborn")
    made.alternate(replace(TURNING, together=True))
    assert all(side.over for side in made.all)
    assert made.all[1].opened.measured.died is is_failed


def test_on_one_core_no_thread_of_a_side_keeps_another_and_each_gets_its_cores_back(
    sides: Callable[..., Sides], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sides("runs", "runs")
    allowed: dict[int, list[set[int]]] = {}
    of_program = {10: {5}}  # that the program itself chose for a thread

    def affinity(tid: int) -> set[int]:
        return allowed[tid][-1] if tid in allowed else {3} if tid >= 20 else of_program.get(tid, {3, 5})

    for number, side in enumerate(made.all):  # each starts a third thread once it is on the one core
        known = [number, number + 10, number + 20]
        monkeypatch.setattr(side, "_threads", lambda known=known: known if known[0] in allowed else known[:2])
    monkeypatch.setattr(os, "sched_getaffinity", affinity)
    monkeypatch.setattr(os, "sched_setaffinity", lambda tid, cores: allowed.setdefault(tid, []).append(cores))
    turns = made.alternate(replace(TURNING, one_core=True))
    assert turns.done == 4
    moved = {tid: [{3}, of_program.get(tid, {3, 5})] for tid in (0, 1, 10, 11)}  # in the first pair on the first core
    assert allowed == moved | {20: [{3, 5}], 21: [{3, 5}]}
    assert [side.run.state.facts["turns"]["core"] for side in made.all] == [3, 3]


@pytest.mark.parametrize(("what", "is_failed"), [("leaves", False), ("fails", True), ("dies", True)])
def test_who_ends_before_its_last_turn_takes_the_other_with_it(
    sides: Callable[..., Sides], what: str, is_failed: bool
) -> None:
    made = sides("runs", what)
    begin_s = time.monotonic()
    turns = made.alternate(TURNING)
    assert time.monotonic() - begin_s < 10
    runs, ends = (side.run.state for side in made.all)
    assert 0 < turns.done < 4
    assert (runs.partner is not None) and ends.partner is None
    assert made.all[1].opened.measured.died is is_failed
    assert not made.all[0].opened.measured.died
    assert all(side.over for side in made.all), "nothing is left stopped"


@pytest.mark.parametrize("moment", ["holds", "runs"])
def test_a_side_that_is_killed_is_seen_and_nothing_stays_stopped(sides: Callable[..., Sides], moment: str) -> None:
    made = sides("runs", "runs", steps=100_000)
    victim, other = made.all
    turn = other.turn if moment == "holds" else victim.turn

    def killing(steps: int, others_failed: Callable[[], bool]) -> None:
        if len(victim.windows) > 4:
            os.kill(victim.process._process._child.pid, signal.SIGKILL)  # type: ignore[union-attr]
        turn(steps, others_failed)

    (other if moment == "holds" else victim).turn = killing  # type: ignore[method-assign]
    made.alternate(Turning(10, 1000, 5))
    assert victim.opened.measured.died
    assert not other.opened.measured.died
    assert all(side.over for side in made.all)


@pytest.mark.parametrize("together", [False, True])
def test_a_side_that_is_killed_while_it_starts_ends_the_pair_within_ten_seconds(
    sides: Callable[..., Sides], together: bool
) -> None:
    made = sides("runs", "starts", steps=100_000)
    other, victim = made.all
    rests = victim.rests

    def killing(others_failed: Callable[[], bool]) -> bool:
        os.kill(victim.process._process._child.pid, signal.SIGKILL)  # type: ignore[union-attr]
        return rests(others_failed)

    victim.rests = killing  # type: ignore[method-assign]
    begin_s = time.monotonic()
    made.alternate(replace(TURNING, together=together))
    assert time.monotonic() - begin_s < 10
    assert victim.opened.measured.died
    assert not other.opened.measured.died
    assert all(side.over for side in made.all if side._started)


def test_a_side_past_its_own_time_is_ended_and_the_others_time_does_not_count(sides: Callable[..., Sides]) -> None:
    made = sides("runs", "runs", steps=100_000, limit_s=1.0)
    turns = made.alternate(Turning(50, 10_000, 5))
    late = [side for side in made.all if side.late]
    assert len(late) == 1
    assert turns.done > 1
    assert late[0].spent_s == pytest.approx(1.0, abs=0.5)
    assert late[0].opened.measured.exit is not None
    assert late[0].opened.measured.exit.timed_out


def test_a_report_that_is_not_of_the_grant_is_refused(sides: Callable[..., Sides]) -> None:
    made = sides("runs", "boasts")
    made.alternate(TURNING)
    assert [str(error) for error in made.errors] and isinstance(made.errors[0], TrialError)
    assert all(side.over for side in made.all)


def test_who_may_write_in_the_folder_may_open_the_pipes(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with ExitStack() as stack:
        grants = Grants(tmp_path, stack)
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        assert modes == {"turn.grant": 0o666, "turn.report": 0o666}
        assert grants.report(0.0) is None
