"""Are answers from turns true where one side has a cost in each step, or rare long steps? By tare's own code.

    python -m benchmarks.long_steps [--runs 40] [--steps 240 4000] [--case ...] [--json]

Each run is a simulated weighing of two sides in turns: processes that differ by 1 % from start to start, steps of 5 ms
that scatter by 5 %, bursts of 0.1 s that make either side half as slow again, and in one side what is planted. The
marks of each trial become figures, facts and a verdict by the code that a run uses, and the run ends by the rule of
`tare weigh`.

The table: how many runs are called what; how many of their intervals hold the truth; and how many are called
*equivalent* where the truth lies beyond the margin of 5 %. Shares have exact 95 % intervals (Clopper and Pearson).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from tare.analysis.selection import MEAN_STEP
from tare.analysis.weighing import is_enough, weigh
from tare.api.studies import weigh_study
from tare.figures.steps import TURNS, facts_of_steps, step_metrics, steps_in
from tare.parts.protocols import Mark
from tare.plan.turning import Turning, turning_of
from tare.records.model import Record, State

MARGIN = 0.05
STEP_S, OWN, SCATTER = 5e-3, 0.01, 0.05  # a step; how processes, and their steps, differ from each other
BURST_EVERY_S, BURST_S, SLOWER = 2.0, 0.1, 1.5
CASES: dict[str, tuple[float, float, float]] = {  # share of each step; how often a step is so many times as long
    "alike": (0.0, 0.0, 1.0),
    "3 % in each step": (0.03, 0.0, 1.0),
    "1 % of steps at 6x": (0.0, 0.01, 6.0),
    "1 % of steps at 60x": (0.0, 0.01, 60.0),
    "0.05 % of steps at 60x": (0.0, 0.0005, 60.0),
}


@dataclass
class Kept:
    """A store in memory: what a weighing reads of one."""

    study: dict[str, Any]
    made: list[Record] = field(default_factory=list)

    def records(self) -> list[Record]:
        return self.made

    def rehearsals(self) -> list[Record]:
        return []

    def states(self) -> dict[str, State]:
        return {record.trial: record.state for record in self.made}


class Machine:
    """Its clock, and its bursts."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.now_s = 1.0
        self._rng = rng
        self._burst_s = rng.exponential(BURST_EVERY_S)

    def step(self, own_s: float) -> tuple[int, int]:
        """Begin and end of a step that would take so long undisturbed."""
        begin_s = self.now_s
        while self._burst_s + BURST_S < begin_s:
            self._burst_s += BURST_S + self._rng.exponential(BURST_EVERY_S)
        self.now_s += own_s * (SLOWER if self._burst_s < begin_s else 1.0)
        return round(begin_s * 1e9), round(self.now_s * 1e9)


class Process:
    """One side of a pair."""

    def __init__(self, rng: np.random.Generator, machine: Machine, steps: int, planted: tuple[float, float, float]):
        share, often, times = planted
        own_s = STEP_S * rng.lognormal(0.0, OWN) * (1 + share)
        rare = np.where(rng.random(steps) < often, times, 1.0)
        self._machine, self._left = machine, list(own_s * rng.lognormal(0.0, SCATTER, steps) * rare)
        self.marks: list[Mark] = []
        self.windows: list[list[int]] = []

    def turn(self, steps: int) -> None:
        first = len(self.marks) // 2
        for number, own_s in enumerate(self._left[first : first + steps], first):
            begin_ns, end_ns = self._machine.step(own_s)
            self.marks += [Mark(begin_ns, "step", "begin", number), Mark(end_ns, "step", "end", number)]
        self.windows.append([self.marks[2 * first].t_ns, self.marks[-1].t_ns])

    def record(self, side: str, block: int, turning: Turning) -> Record:
        told = {**turning.as_plain(), "before": 1 + turning.warm, "done": turning.count, "windows_ns": self.windows,
                "synchronous": True}  # fmt: skip
        steps = steps_in(self.marks, {TURNS: told})
        assert steps is not None
        facts = {TURNS: told, "place": {}} | facts_of_steps(steps, {TURNS: told})
        return Record(
            trial=f"{side}{block}", attempt=1, study="weigh", block=block, position=0, twin=0, state="ok",
            settings={"platform": side, "workload": "command"}, metrics=step_metrics(steps), facts=facts,
            start_ns=self.marks[0].t_ns, end_ns=self.marks[-1].t_ns,
        )  # fmt: skip


def one_run(case: str, steps: int, seed: int) -> dict[str, Any]:
    """A weighing to its end."""
    rng, turning = np.random.default_rng([seed, steps, *map(ord, case)]), turning_of(steps, STEP_S)
    assert turning is not None
    made = weigh_study(
        {"command": {"argv": ["true"]}}, ["bare", "runc"], {"against": {"platform": "bare"}},
        repeat=None, margin=MARGIN, seconds=None, design={},
    )  # fmt: skip
    store = Kept(made.as_plain())
    for block in range(made.repeat.max):
        machine = Machine(rng)
        sides = {
            side: Process(rng, machine, steps, CASES[case if side == "runc" else "alike"]) for side in ("bare", "runc")
        }
        for length in (1, turning.warm, *[turning.steps] * turning.count):
            for side in rng.permutation(list(sides)):
                sides[side].turn(length)
        store.made += [process.record(side, block, turning) for side, process in sides.items()]
        if block + 1 >= made.repeat.min and is_enough(store, until=made.repeat.until or MARGIN / 2):
            break
    (found,) = [each for each in weigh(store).comparisons if each.metric == MEAN_STEP]
    return {"case": case, "steps": steps, "word": found.verdict, "low": found.low, "high": found.high, "n": found.n}


def truth(case: str) -> float:
    share, often, times = CASES[case]
    return (1 + share) * (1 + often * (times - 1)) - 1


def table(runs: Sequence[dict[str, Any]]) -> str:
    lines = ["| planted | truth | steps | runs | called | intervals that hold it | equivalent beyond the margin |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for case, steps in dict.fromkeys((each["case"], each["steps"]) for each in runs):
        own = [each for each in runs if (each["case"], each["steps"]) == (case, steps)]
        words = [each["word"] for each in own]
        called = ", ".join(f"{words.count(word)} {word.replace('_', ' ')}" for word in dict.fromkeys(words))
        holds = _share([each["low"] <= truth(case) <= each["high"] for each in own if each["low"] is not None])
        beyond = "-" if abs(truth(case)) < MARGIN - 1e-9 else _share([word == "equivalent" for word in words])
        lines.append(f"| {case} | {truth(case):+.1%} | {steps:,} | {len(own)} | {called} | {holds} | {beyond} |")
    return "\n".join(lines)


def _share(true: Sequence[bool]) -> str:
    count, n = sum(true), len(true)
    interval = stats.binomtest(count, n).proportion_ci(0.95, "exact")
    return f"{count} of {n} [{interval.low:.0%}, {interval.high:.0%}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--steps", type=int, nargs="+", default=[240, 4000])
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--json", action="store_true", help="each run on a line")
    options = parser.parse_args()
    runs = [
        one_run(case, steps, seed) for case in options.case for steps in options.steps for seed in range(options.runs)
    ]
    print("\n".join(map(json.dumps, runs)) if options.json else table(runs))


if __name__ == "__main__":
    main()
