"""Is what the answer says true? Weighings of two sides that are alike, or that differ by a planted cost.

    python -m benchmarks.identical run FOLDER [--runs 40] [--blocks 7] [--share 0.03] [--rare 60] [--load 1]
    python -m benchmarks.identical table FOLDER

Each run is a `tare run` of its own: a program of marked steps on bare metal, against itself with another word. With
`--share` each step of the second side does so much more work, with `--rare` one step of 100 so many times as much.
`--load` keeps so many cores busy meanwhile. `run` goes on where the folder ends.

The table: how many runs were decided, and how; how many intervals leave out zero (before any word), and how many hold
the planted cost, each with its exact 95 % interval (Clopper and Pearson); and the mean log ratio of all pairs with its
standard error, also by which side started first, which had the first turn, and which core they had.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from scipy import stats

from tare.analysis.model import Comparison
from tare.analysis.selection import MEAN_STEP
from tare.analysis.weighing import weigh
from tare.records.model import Record, is_usable
from tare.records.store import Store

PROGRAM = """\
import hashlib, sys
from tare_inside import marks
steps, size, share, rare = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
planted = sys.argv[5] == "second"
usual = bytes(round(size * (1 + share * planted)))
for number in range(steps):
    times = round(rare) if planted and rare and number % 100 == 57 else 1
    with marks.during("step", number):
        for _ in range(times):
            hashlib.sha256(usual).digest()
"""
STUDY = """\
study: identical
platform: bare
workload:
  command:
    argv: [{python}, {program}, "{steps}", "{size}", "{share}", "{rare}", "{{side}}"]
    vary: {{side: [first, second]}}
compare: {{by: workload.side, against: {{workload.side: first}}, margin: 5%}}
repeat: {blocks}
aa: false
rehearse: true
order: {{seed: {seed}}}
"""


def run(options: argparse.Namespace) -> None:
    folder = options.folder.resolve()
    program = folder / "program" / "steps.py"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(PROGRAM)
    with ExitStack() as stack:
        for _ in range(options.load):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        for number in range(options.runs):
            study, store = folder / f"{number}.yaml", folder / f"{number}"
            study.write_text(
                STUDY.format(
                    python=sys.executable, program=program, steps=options.steps,
                    size=options.size, share=options.share, rare=options.rare, blocks=options.blocks, seed=number,
                )
            )  # fmt: skip
            tare = [sys.executable, "-m", "tare", "run", str(study), "-o", str(store), "--wait", "1h"]
            subprocess.run(tare, check=True, stdout=subprocess.DEVNULL)
            print(f"{number + 1} of {options.runs}", file=sys.stderr, flush=True)


def table(options: argparse.Namespace) -> None:
    found: list[Comparison] = []
    logs: dict[str, list[float]] = defaultdict(list)
    for path in sorted(options.folder.glob("*/store.json")):
        with Store.open(path.parent) as store:
            found += [each for each in weigh(store).comparisons if each.metric == MEAN_STEP]
            _pairs([each for each in store.records() if is_usable(each)], logs)
    spans = [(each.low, each.high) for each in found if each.low is not None and each.high is not None]
    truth = math.expm1(math.log1p(options.share) + math.log1p(0.01 * (max(options.rare, 1) - 1)))
    words = [each.verdict for each in found]
    print(f"{len(found)} runs: " + ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)))
    print(f"decided: {_share([word != 'cannot_tell' for word in words])}")
    print(f"intervals that leave out zero: {_share([low > 0 or high < 0 for low, high in spans])}")
    print(f"intervals that hold {truth:+.2%}: {_share([low <= truth <= high for low, high in spans])}")
    print("| pairs | n | mean log ratio | standard error |")
    print("|---|---|---|---|")
    for which, values in sorted(logs.items()):
        error = f"{np.std(values, ddof=1) / math.sqrt(len(values)):.3%}" if len(values) > 1 else ""
        print(f"| {which} | {len(values)} | {np.mean(values):+.3%} | {error} |")


def _pairs(records: Sequence[Record], logs: dict[str, list[float]]) -> None:
    """The log ratio of each pair, under all that it may depend on."""
    blocks: dict[int, dict[bool, Record]] = defaultdict(dict)
    for record in records:
        blocks[record.block][record.settings["workload.side"] == "second"] = record
    for pair in blocks.values():
        if len(pair) < 2 or not all(MEAN_STEP in each.metrics for each in pair.values()):
            continue
        log = math.log(pair[True].metrics[MEAN_STEP] / pair[False].metrics[MEAN_STEP])
        logs["all"].append(log)
        turns = {side: record.facts["turns"] for side, record in pair.items() if "turns" in record.facts}
        if len(turns) < 2:
            continue
        starts = {side: told["windows_ns"][0][0] for side, told in turns.items()}
        logs[f"the {'second' if starts[True] < starts[False] else 'first'} side started first"].append(log)
        logs[f"the {'second' if turns[True]['order'][0] == 0 else 'first'} side had the first turn"].append(log)
        logs[f"on core {turns[True].get('core', 'any')}"].append(log)


def _share(true: Sequence[bool]) -> str:
    """How many of these, with the exact interval of the share."""
    if not true:
        return "none"
    count, n = sum(true), len(true)
    interval = stats.binomtest(count, n).proportion_ci(0.95, "exact")
    return f"{count} of {n}, {count / n:.1%} [{interval.low:.1%}, {interval.high:.1%}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("run", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--size", type=int, default=2_000_000, help="bytes that a step hashes")
    parser.add_argument("--share", type=float, default=0.0)
    parser.add_argument("--rare", type=float, default=0.0)
    parser.add_argument("--load", type=int, default=0)
    options = parser.parse_args()
    (run if options.do == "run" else table)(options)


if __name__ == "__main__":
    main()
