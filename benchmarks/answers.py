"""CPU and wall seconds of `tare` from its start to its answer, each a process of its own, in shuffled rounds.

    python -m benchmarks.answers [ROUNDS] [--against SRC] [--only WORD]

With --against, the `src` of another tree runs the same in the same rounds, and the ratio is shown; --only takes those
whose name has the word in it, such as `kept`, which takes a minute or so and is left out otherwise. Then how many lines
of a text trace are read in a second of CPU time, without the start of the process.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rounds import Rounds
from tare.analysis.model import Estimate
from tare.analysis.numeric.medians import median_estimate

ROOT = Path(__file__).resolve().parent.parent
KEPT = "verify, kept results"
PACK = ROOT / "tests" / "recordings" / "h200" / "energy-store.tare"
ROUNDS = 7
YARDSTICK = "import numpy"  # no verb: what a verb that only prints is compared with, whatever the machine


def commands(folder: Path) -> dict[str, list[str]]:
    """What is timed; the tables and the trace that it needs are written into the folder."""
    draw = random.Random(3)
    few, many = folder / "few.csv", folder / "many.csv"
    rows = [(level, block, 1 + 0.02 * draw.random()) for block in range(8) for level in ("bare", "docker")]
    few.write_text("platform,block,step_s\n" + "".join(f"{level},{block},{value}\n" for level, block, value in rows))
    modes = [(cores, mhz, 10 / cores + 100 / mhz + draw.random()) for cores in range(1, 101) for mhz in range(1, 1001)]
    lines = (f"{cores},{mhz},{time},{time * (cores + mhz / 100)}\n" for cores, mhz, time in modes)
    many.write_text("cores,mhz,step_s,energy_j\n" + "".join(lines))
    (folder / "trace.txt").write_text(_trace(200_000))
    return {
        "--help": ["--help"],
        "list studies": ["list", "studies"],
        YARDSTICK: [YARDSTICK],
        "trace import, 200,000 lines": ["trace", "import", str(folder / "trace.txt")],
        "show, 18 trials": ["show", str(PACK)],
        "compare, 16 rows": ["compare", str(few), "--by", "platform", "--metric", "step_s", "--block", "block"],
        "front, 100,000 rows": [
            "choose",
            "front",
            str(many),
            "--minimise",
            "step_s,energy_j",
            "--settings",
            "cores,mhz",
        ],
        "verify, recorded store": ["store", "verify", str(PACK)],
        KEPT: ["store", "verify", str(ROOT / "studies-results")],
        "report, recorded store": ["report", str(PACK), "-o", str(folder / "report.html")],
    }


_TEXT_TRACE = """
import sys, time
from pathlib import Path
from tare.kernel.traces.importing import Summary, opened
path, summary = Path(sys.argv[1]), Summary()
begin_s = time.process_time()
with opened(path) as trace:
    for chunk in trace.chunks:
        summary.add(chunk)
print(path.read_bytes().count(b"\\n") / (time.process_time() - begin_s))
"""


def rates(folder: Path) -> dict[str, list[str]]:
    """Programs that print how much they did in a second."""
    return {"lines of a text trace": ["-c", _TEXT_TRACE, str(folder / "trace.txt")]}


def _trace(lines: int) -> str:
    """A recorded trace again and again, each time later and with other processes, files and sectors."""
    recorded = (ROOT / "tests" / "recordings" / "trace-6.18" / "report.txt").read_text()
    draw = random.Random(5)
    files = [draw.randrange(10 ** draw.randrange(3, 10)) for _ in range(1000)]
    numbers = re.compile(r"(?<= )\d+(?=\.\d{9}:)|(?<=[-:])\d{4,}(?= )|(?<=ino=|dex=)\d+|\d+(?= \+ )")
    copies = []
    for copy in range(lines // recorded.count("\n")):
        pids = {4: draw.randrange(1000, 10_000), 5: draw.randrange(10_000, 60_000)}

        def other(found: re.Match[str], copy: int = copy, pids: Mapping[int, int] = pids) -> str:
            if found.string[found.end()] == ".":
                return str(int(found[0]) + copy)
            if found.string[found.start() - 1] in "-:":
                return str(int(found[0]) % 1000 + pids[len(found[0])])
            is_file = found.string.endswith("ino=", 0, found.start())
            return str(draw.choice(files) if is_file else draw.randrange(10 ** draw.randrange(1, 10)))

        copies.append(numbers.sub(other, recorded))
    return "".join(copies)


def measure(rounds: int = ROUNDS, against: Path | None = None, only: str | None = None) -> dict[str, dict[str, Any]]:
    """CPU and wall seconds of each command: medians over rounds with intervals, of this tree and of the other one."""
    trees = {"tare": ROOT / "src", **({"other": against} if against is not None else {})}
    order = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        known, quick = commands(Path(folder)), rates(Path(folder))
        names = [name for name in (*known, *quick) if (name != KEPT if only is None else only in name)]
        spent: dict[str, dict[str, list[float]]] = {name: {tree: [] for tree in trees} for name in names}
        walls: dict[str, list[float]] = {name: [] for name in names if name in known}
        kept = Rounds()
        for _ in range(rounds):
            for name, tree in order.sample(pairs := [(name, tree) for name in spent for tree in trees], len(pairs)):
                begin_s = time.perf_counter()
                taken = cpu_s(known[name], trees[tree]) if name in known else 1e6 / rate(quick[name], trees[tree])
                spent[name][tree].append(taken)
                kept.add(f"{name}, CPU" if tree == "tare" else f"{name}, CPU, other tree", taken)
                if name in known and tree == "tare":
                    walls[name].append(time.perf_counter() - begin_s)
                    kept.add(f"{name}, wall", walls[name][-1])
    kept.keep("answers")
    waited = {name: {"wall": median_estimate(values)} for name, values in walls.items()}
    return {name: {**_figures(by_tree), **waited.get(name, {})} for name, by_tree in spent.items()}


def rate(words: Sequence[str], source: Path) -> float:
    """What a program of its own prints."""
    env = {**os.environ, "PYTHONPATH": f"{source}:{ROOT}"}
    return float(subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True, env=env).stdout)


def cpu_s(words: Sequence[str], source: Path) -> float:
    """User and system time of one `tare`, with what it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *(["-c"] if words == [YARDSTICK] else ["-m", "tare"]), *words]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(source)})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _figures(by_tree: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    found: dict[str, Any] = {tree: median_estimate(values) for tree, values in by_tree.items()}
    if "other" in by_tree:
        pairs = zip(by_tree["other"], by_tree["tare"], strict=True)
        found["ratio"] = median_estimate([other / ours for other, ours in pairs])
    return found


def text(result: Mapping[str, Mapping[str, Any]]) -> str:
    width = max(map(len, result))
    lines = []
    for name, figures in result.items():
        waited = f", {_told(figures['wall'])} s of wall time" if "wall" in figures else " a million"
        told = [f"{_told(figures['tare'])} s of CPU time{waited}"]
        if "other" in figures:
            told += [f"the other tree {_told(figures['other'])} s", f"{_told(figures['ratio'])} times as much"]
        lines.append(f"{name:{width}}  {'; '.join(told)}  (n = {figures['tare'].n})")
    return "\n".join(lines)


def _told(found: Estimate) -> str:
    return f"{found.value:.2f}" + ("" if found.low is None else f" [{found.low:.2f}, {found.high:.2f}]")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", metavar="WORD")
    given = parser.parse_args()
    sys.stdout.write(text(measure(given.rounds, given.against, given.only)) + "\n")
