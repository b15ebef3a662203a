"""How often `tare why` claims a cost, or accuses a suspect, that is not there: by simulated runs of known times.

Each run is two sides and one suspect, in blocks that are looked at as `tare why` looks at them. A core that changes its
speed hits whole blocks; times scatter by 1 to 10 %; one trial in twelve is lost; in one world the slow side scatters
five times as much as the other, in another one trial in ten takes half as long again; in the last one the slow side
without the suspect scatters five times as much as the others, and is run in every second block only.

python benchmarks/why_proof.py [RUNS]
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tare.analysis.why.proof import Table, Timed, level_of, looks

MOST = 12  # blocks: twice the default of --repeat
LOST = 1 / 12  # of the trials


@dataclass(frozen=True)
class World:
    """How the times of a run come about."""

    scatter: float  # of one trial, in logarithms
    drift: float = 0.2  # from one block to the next
    slow_scatter: float = 1.0  # of the slow side and of the suspect, as a multiple
    spikes: float = 0.0  # trials that take half as long again
    suspect_scatter: float | None = None  # of the slow side without the suspect, where it is not that of the slow side
    suspect_every: int = 1  # the suspect is tried in one of so many blocks


WORLDS = {
    "1 %": World(0.01),
    "3 %": World(0.03),
    "10 %": World(0.10),
    "2 %, no drift": World(0.02, drift=0.0),
    "2 %, slow side 10 %": World(0.02, slow_scatter=5.0),
    "2 %, spikes": World(0.02, spikes=0.1),
    "2 %, suspect 10 %": World(0.02, suspect_scatter=5.0, suspect_every=2),
}


def blocks(world: World, cost: float, removed: float, noise: random.Random) -> Iterator[list[Timed]]:
    """Block after block of the quick side, the slow one, and the slow one without the suspect; in logarithms."""
    times = {"quick": 0.0, "slow": cost, "without": cost - removed}
    suspect = world.slow_scatter if world.suspect_scatter is None else world.suspect_scatter
    scatters = {"quick": 1.0, "slow": world.slow_scatter, "without": suspect}
    speed, number = 0.0, 0
    while True:
        speed += noise.gauss(0, world.drift)
        held = []
        for side, log in times.items():
            wide = world.scatter * scatters[side]
            log += speed + noise.gauss(0, wide) + (math.log(1.5) if noise.random() < world.spikes else 0.0)
            if noise.random() >= LOST and (side != "without" or number % world.suspect_every == 0):
                held.append(Timed(number, side, log))
        yield held
        number += 1


def run(world: World, seed: str, cost: float = 0.0, removed: float = 0.0) -> tuple[int, int, bool]:
    """After how many blocks a cost is claimed, after how many the suspect is accused (0: never), whether all intervals
    held what is true."""
    noise, held = random.Random(seed), []
    claimed = accused = 0
    covered = True
    for number, block in enumerate(blocks(world, cost, removed, noise), start=1):
        held += block
        if number in looks(MOST):
            table = Table(held)
            total, gone = table.shift("slow", "quick"), table.shift("slow", "without")
            whole = None if total is None else total.interval(level_of(MOST))
            part = None if gone is None else gone.interval(level_of(MOST, 1))
            if whole is not None:
                covered &= whole[0] <= cost <= whole[1]
                claimed = claimed or (number if whole[0] > 0 else 0)
            if part is not None:
                accused = accused or (number if part[0] > 0 else 0)
        if number == MOST:
            return claimed, accused, covered


def main(runs: int) -> None:
    print(f"{runs} runs a line; at most {MOST} blocks, looked at after {', '.join(map(str, looks(MOST)))}")
    print("world                  A/A: claimed  accused  covered | beside 2x: accused  covered")
    for name, world in WORLDS.items():
        null = [run(world, f"{name}:{n}") for n in range(runs)]
        beside = [run(world, f"{name}:beside:{n}", cost=math.log(2)) for n in range(runs)]
        share = [
            sum(bool(each[0]) for each in null) / runs, sum(bool(each[1]) for each in null) / runs,
            sum(each[2] for each in null) / runs, sum(bool(each[1]) for each in beside) / runs,
            sum(each[2] for each in beside) / runs,
        ]  # fmt: skip
        print("{:22} {:12.2%} {:8.2%} {:8.2%} | {:18.2%} {:8.2%}".format(name, *share))
    print("world                  cost  found  median blocks to claim, to the cause")
    for name, world in WORLDS.items():
        for times in (1.1, 1.3, 2.0, 8.0):
            made = [run(world, f"{name}:{times}:{n}", math.log(times), math.log(times)) for n in range(runs // 5)]
            found = sorted(each[0] for each in made if each[0])
            cause = sorted(each[1] for each in made if each[1])
            middle = [each[len(each) // 2] if each else "-" for each in (found, cause)]
            print(f"{name:22} {times:4.1f}x {len(found) / len(made):6.1%}  {middle[0]}, {middle[1]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
