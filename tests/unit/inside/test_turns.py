"""A process does the steps that it was granted, reports, and waits; it goes on alone when nobody grants any more."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tare_inside import marks
from tare_inside.turns import FREE, GRANT, REPORT, Turns, paths


class Granting:
    """The other end of the two FIFOs."""

    def __init__(self, folder: Path) -> None:
        for path in paths(str(folder)):
            os.mkfifo(path)
        self.grants, self.reports = (os.open(path, os.O_RDWR) for path in paths(str(folder)))

    def grant(self, steps: int) -> None:
        os.write(self.grants, GRANT.pack(steps))

    def reported(self) -> tuple[int, int, int, int]:
        return REPORT.unpack(os.read(self.reports, REPORT.size))

    def close(self) -> None:
        os.close(self.grants)
        os.close(self.reports)


@pytest.fixture
def granting(tmp_path: Path) -> Iterator[Granting]:
    made = Granting(tmp_path)
    yield made
    made.close()


class Stepping(threading.Thread):
    """Does so many steps under turns, and notes each."""

    def __init__(self, folder: Path, steps: int, settle: object = None) -> None:
        super().__init__(daemon=True)
        self.turns, self.steps, self.done = Turns(str(folder), settle=settle), steps, 0
        self.start()

    def run(self) -> None:
        self.turns.hold(0)
        for step in range(self.steps):
            self.done += 1
            self.turns.stepped(step + 1)
        self.turns.close()


def test_it_does_as_many_steps_as_were_granted_and_says_when(tmp_path: Path, granting: Granting) -> None:
    side = Stepping(tmp_path, steps=10)
    reports = [granting.reported()]
    for steps, done in ((3, 3), (1, 4), (6, 10)):
        granting.grant(steps)
        reports.append(granting.reported())
        assert side.done == done
    granting.grant(FREE)
    side.join(60)

    assert [following for following, *_ in reports] == [0, 3, 4, 10]
    spans = [(begin, end) for _, begin, end, _ in reports]
    assert all(begin <= end <= later for (begin, end), (later, _) in pairwise(spans))
    waited = [ns for *_, ns in reports]
    assert waited[0] == 0 < waited[1] < waited[2] < waited[3]
    held = [later - end for (_, end), (later, _) in pairwise(spans)]
    assert waited[-1] == sum(held), "what it waited is what lies between its turns"


def test_freed_it_asks_no_more(tmp_path: Path, granting: Granting) -> None:
    side = Stepping(tmp_path, steps=1000)
    granting.reported()
    granting.grant(FREE)
    side.join(60)
    assert side.done == 1000


@pytest.mark.parametrize("first", ["holding", "between"])
def test_it_goes_on_alone_when_nobody_grants_any_more(tmp_path: Path, first: str) -> None:
    granting = Granting(tmp_path)
    side = Stepping(tmp_path, steps=50)
    granting.reported()
    if first == "between":
        granting.grant(7)
    granting.close()
    side.join(60)
    assert side.done == 50


def test_two_threads_that_end_steps_hold_once(tmp_path: Path, granting: Granting) -> None:
    settled = threading.Event()
    turns = Turns(str(tmp_path), settle=lambda: settled.wait(60))
    threads = [threading.Thread(target=turns.ended, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)  # the first waits for the device, the second for the first
    settled.set()
    granting.reported()
    granting.grant(5)
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not select.select([granting.reports], [], [], 0)[0], "one report a turn"
    turns.close()


def test_the_device_is_waited_for_once_a_turn(tmp_path: Path, granting: Granting) -> None:
    settled = []
    side = Stepping(tmp_path, steps=12, settle=lambda: settled.append(1))
    for steps in (4, 4, 4):
        granting.reported()
        granting.grant(steps)
    granting.reported()
    granting.grant(FREE)
    side.join(60)
    assert len(settled) == 4


def test_a_forked_child_takes_no_turn(tmp_path: Path, granting: Granting) -> None:
    turns = Turns(str(tmp_path))
    child = os.fork()
    if not child:
        turns.stepped(1)  # would wait for ever
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    turns.close()


@pytest.mark.parametrize(
    ("script", "grants", "follows"),
    [
        ("validation.py", (3, 2, FREE), [1, 4, 6]),  # with a DataLoader, and an evaluation in between
        ("plain_loop.py", (2, 1, FREE), [2, 4, 5]),  # without: the second step shows where the first one ended
        ("accumulation.py", (FREE,), [1]),  # several batches a step
        ("gan.py", (1, 1, FREE), [1, 2, 3]),  # two optimisers a step
        ("inference.py", (4, FREE), [1, 5]),
        ("forking.py", (4, FREE), [1, 5]),
        ("by_hand.py", (), []),  # steps that may be taken back end no turn
    ],
)
def test_scripts_hold_at_the_end_of_a_step(
    tmp_path: Path, granting: Granting, torch_forks: Callable[..., None], script: str, grants: tuple[int, ...],
    follows: list[int],
) -> None:  # fmt: skip
    for steps in grants:
        granting.grant(steps)
    torch_forks(tmp_path / "ran", [(script, f"TARE_MARKS={tmp_path / 'marks.bin'}")])
    reports = []
    while select.select([granting.reports], [], [], 0)[0]:
        reports.append(granting.reported())
    assert [following for following, *_ in reports] == follows
    ended = sorted(
        t for t, name, edge, _ in marks.load(str(tmp_path / "marks.bin"))[0] if (name, edge) == ("step", "end")
    )
    for following, _, end_ns, _ in reports:
        assert ended[following - 1] <= end_ns, "the step ends before the hold"
        assert following == len(ended) or end_ns <= ended[following]


def test_a_script_that_marks_its_steps_and_has_an_optimiser_takes_each_turn_once(
    tmp_path: Path, granting: Granting, torch_forks: Callable[..., None]
) -> None:
    for steps in (3, FREE):
        granting.grant(steps)
    torch_forks(tmp_path / "ran", [("own_steps.py", f"TARE_MARKS={tmp_path / 'marks.bin'}")])
    assert [granting.reported()[0], granting.reported()[0]] == [1, 4]
    assert not select.select([granting.reports], [], [], 0)[0]


def test_marks_of_a_programs_own_hold_too(tmp_path: Path, granting: Granting) -> None:
    program = "from tare_inside import marks\nfor n in range(9):\n    with marks.during('step', n):\n        pass\n"
    for steps in (3, FREE):
        granting.grant(steps)
    env = {**os.environ, "TARE_MARKS": str(tmp_path / "marks.bin"), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)
    assert [granting.reported()[0], granting.reported()[0]] == [1, 4]
    assert len([mark for mark in marks.load(env["TARE_MARKS"])[0] if mark[1] == "step"]) == 18
