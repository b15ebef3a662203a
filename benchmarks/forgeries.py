"""How often is an honest program refused by the time from outside, and how often is a forged gain believed?

    python -m benchmarks.forgeries [--runs 300] [--blocks 10] [--seed 1]

Each run is a store of made-up records of two sides, as a trial of a program leaves them: what the device saw of a run,
and what the program reports. The real time of a step, the parts of a run and the noise are drawn; the real effect on a
step is planted. A side of an honest program reports what it did. A forged one reports less, or elsewhere. What is
counted is the word of the weighing itself. In `noisy` the whole runs of both vary by 3 % beside their steps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tare.analysis.model import Weighing
from tare.analysis.weighing import weigh
from tare.records.model import Record, State

MARGIN = 0.05
EFFECTS = (0.0, 0.1, 0.4, -0.1, -0.4)


@dataclass(frozen=True)
class Run:
    """One run as it was: seconds of its parts, and what is reported of it."""

    start_s: float
    steps: int
    step_s: float  # mean of the measured steps
    warm_up_s: float = 0.0  # what the first steps take more than others, in all
    at_once: float = 1.0  # steps that are open at the same time
    between_s: float = 0.0  # in all, not marked
    checkpoints_s: float = 0.0
    exit_s: float = 0.05
    after_s: float = 0.02  # until the device sees that it is over

    def seen_s(self) -> float:
        parts_s = self.start_s + self.warm_up_s + self.between_s + self.checkpoints_s + self.exit_s + self.after_s
        return parts_s + self.steps * self.step_s / self.at_once

    def reported(self) -> dict[str, float]:
        """The figures that its marks make."""
        metrics = {
            "steps": float(self.steps), "step_mean_s": self.step_s, "step_s": self.step_s, "startup_s": self.start_s,
            "platform_open_s": 0.0, "steps_s": self.steps * self.step_s / self.at_once + self.warm_up_s,
            "steps_at_once": self.at_once, "exit_s": self.exit_s,
        }  # fmt: skip
        return metrics | ({"checkpoints_s": self.checkpoints_s} if self.checkpoints_s else {})


Real = Callable[[float, np.random.Generator], Run]  # of an effect on the step
Forged = Callable[[Run], dict[str, float]]  # of the real run, what is reported


def _varied(rng: np.random.Generator, value: float, share: float = 0.01) -> float:
    return value * float(np.exp(rng.normal(0, share)))


def _fixed(effect: float, rng: np.random.Generator, **parts: Any) -> Run:
    run = Run(start_s=_varied(rng, 2.0, 0.03), steps=200, step_s=_varied(rng, 0.05) * (1 + effect))
    return replace(run, **parts)


def _timed(effect: float, rng: np.random.Generator, step_s: float = 0.05, share: float = 0.01) -> Run:
    one_s = _varied(rng, step_s, share) * (1 + effect)
    return Run(start_s=_varied(rng, 1.0, 0.03), steps=int(15.0 / one_s) + 1, step_s=one_s)


def _server(effect: float, rng: np.random.Generator) -> Run:
    return _fixed(effect, rng, at_once=8.0, steps=1600)


HONEST: dict[str, Real] = {
    "plain": _fixed,
    "asynchronous GPU": lambda e, rng: _fixed(e, rng, exit_s=_varied(rng, 0.4, 0.1), warm_up_s=_varied(rng, 1.0, 0.1)),
    "timed": _timed,
    "timed, long steps": lambda e, rng: _timed(e, rng, 0.5),
    "timed, steady steps": lambda e, rng: _timed(e, rng, 0.05, 0.0005),
    "concurrent server": _server,
    "heavy checkpoints": lambda e, rng: _fixed(e, rng, checkpoints_s=_varied(rng, 5.0, 0.05)),
    "unmarked saves": lambda e, rng: _fixed(e, rng, between_s=_varied(rng, 1.0, 0.05)),
    "long start-up": lambda e, rng: _fixed(e, rng, start_s=_varied(rng, 15.0, 0.03)),
    "longer start-up on one side": lambda e, rng: _fixed(e, rng, start_s=_varied(rng, 2.0 + 2.0 * max(e, 0.0), 0.03)),
    "long tear-down": lambda e, rng: _fixed(e, rng, exit_s=_varied(rng, 6.0, 0.05)),
    "loader's start": lambda e, rng: _fixed(e, rng, warm_up_s=_varied(rng, 3.0, 0.2)),
    "short": lambda e, rng: _fixed(e, rng, start_s=0.1, steps=40, step_s=_varied(rng, 0.02) * (1 + e)),
    "noisy": lambda e, rng: _fixed(e, rng, between_s=abs(rng.normal(0.5, 0.45))),
}


def _shorter(share: float) -> Forged:
    """Marks that cover a share of each step; the rest lies between them."""
    return lambda run: run.reported() | {
        "step_mean_s": run.step_s * share, "step_s": run.step_s * share, "steps_s": run.steps * run.step_s * share,
    }  # fmt: skip


def _into(name: str, share: float) -> Forged:
    """The same, and the time that is missing is reported as another part of the run."""

    def reported(run: Run) -> dict[str, float]:
        moved_s = run.steps * run.step_s * (1 - share)
        metrics = _shorter(share)(run)
        return metrics | {name: metrics.get(name, 0.0) + moved_s}

    return reported


def _more_steps(times: int) -> Forged:
    """Each step marked as several."""
    return lambda run: run.reported() | {
        "steps": float(run.steps * times), "step_mean_s": run.step_s / times, "step_s": run.step_s / times,
    }  # fmt: skip


def _some_unmarked(share: float) -> Forged:
    """Only some steps are marked, and these as quick."""
    return lambda run: run.reported() | {
        "steps": run.steps * share, "step_mean_s": run.step_s * 0.8, "step_s": run.step_s * 0.8,
        "steps_s": run.steps * share * run.step_s * 0.8,
    }  # fmt: skip


def _overlapping(times: float) -> Forged:
    """Steps that seem longer, many at once: of a baseline that is to look slow."""
    return lambda run: run.reported() | {
        "step_mean_s": run.step_s * times, "step_s": run.step_s * times, "steps_at_once": times,
    }  # fmt: skip


def _early_epoch(share: float) -> Forged:
    """Slow steps are kept apart as those of a first epoch."""
    return lambda run: run.reported() | {"step_mean_s": run.step_s * share, "step_s": run.step_s * share}


FORGED: dict[str, tuple[str, Forged]] = {  # who lies, and how
    "steps cut to 8 %": ("docker", _shorter(0.08)),
    "steps cut to 50 %": ("docker", _shorter(0.5)),
    "steps cut to 90 %": ("docker", _shorter(0.9)),
    "into the start-up, 10 %": ("docker", _into("startup_s", 0.1)),
    "into the start-up, 60 %": ("docker", _into("startup_s", 0.6)),
    "into the start-up, 90 %": ("docker", _into("startup_s", 0.9)),
    "into checkpoints": ("docker", _into("checkpoints_s", 0.5)),
    "into evaluation": ("docker", _into("evaluation_s", 0.5)),
    "into the exit": ("docker", _into("exit_s", 0.5)),
    "into a first epoch": ("docker", _early_epoch(0.2)),
    "ten for one": ("docker", _more_steps(10)),
    "two for one": ("docker", _more_steps(2)),
    "half unmarked": ("docker", _some_unmarked(0.5)),
    "a tenth unmarked": ("docker", _some_unmarked(0.9)),
    "overlapping baseline": ("bare", _overlapping(10.0)),
    "overlapping side": ("docker", _overlapping(0.3)),
    "slow baseline, exit taken back": ("bare", _shorter(1.3)),
    "one side in ten for one": ("bare", lambda run: _more_steps(10)(run) | {"step_mean_s": run.step_s}),
    "whole run": ("docker", lambda run: {"wall_s": run.seen_s() / 20}),
}


@dataclass
class Made:
    """As a weighing reads a store."""

    held: list[Record]
    study: Mapping[str, Any] = field(default_factory=lambda: {"study": "made", "compare": {"margin": MARGIN}})

    def records(self) -> list[Record]:
        return self.held

    def rehearsals(self) -> list[Record]:
        return []

    def states(self) -> dict[str, State]:
        return {each.trial: each.state for each in self.held}


def records_of(
    real: Real, effect: float, rng: np.random.Generator, blocks: int, liar: str = "", lie: Forged = Run.reported
) -> list[Record]:
    """Two sides, `docker` with the planted effect; one of them may lie."""
    made = []
    for block in range(blocks):
        for side in ("bare", "docker"):
            run = real(effect if side == "docker" else 0.0, rng)
            reported = lie(run) if side == liar else run.reported()
            whole = {} if "step_mean_s" in reported else {"wall_s": run.seen_s()}
            if liar and "wall_s" in lie(run):
                reported = lie(run) if side == liar else {"wall_s": run.seen_s()}
            metrics = {**whole, **reported, "outside_s": run.seen_s()}
            settings = {"platform": side, "workload": "command", "workload.argv": ["python", "train.py"]}
            made.append(Record(f"{side}{block}", 1, "made", block, 0, 0, settings, "ok", metrics=metrics))
    return made


def weighed(held: Sequence[Record]) -> Weighing:
    return weigh(Made(list(held)))


def is_refused(found: Weighing) -> bool:
    """Whether what the program reports is not what is judged."""
    (only,) = found.comparisons
    return any(each.code == "compare.outside-time" for each in (*only.notes, *only.withheld))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, usual in (("runs", 300), ("blocks", 10), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args(arguments)
    print(f"{asked.runs} runs of {asked.blocks} blocks, seed {asked.seed}\n\nhonest: share refused, by planted effect")
    for name, real in HONEST.items():
        shares = []
        for effect in EFFECTS:
            rng = np.random.default_rng(asked.seed)
            stores = (records_of(real, effect, rng, asked.blocks) for _ in range(asked.runs))
            shares.append(sum(is_refused(weighed(each)) for each in stores) / asked.runs)
        print(f"  {name:30}", *(f"{effect:+.0%} {share:6.1%}" for effect, share in zip(EFFECTS, shares, strict=True)))
    print("\nforged, no real effect: share caught")
    for name, (liar, lie) in FORGED.items():
        for world in ("plain", "long start-up", "noisy"):
            rng = np.random.default_rng(asked.seed)
            stores = (records_of(HONEST[world], 0.0, rng, asked.blocks, liar, lie) for _ in range(asked.runs))
            print(f"  {name:30} {world:15} {sum(is_refused(weighed(each)) for each in stores) / asked.runs:6.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
