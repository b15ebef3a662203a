"""Plants each cause of `plants.yaml` in an image of its own and asks `tare why` once, with a time limit.

    python tools/with_engine.py .venv/bin/python -m benchmarks.second_catalogue [NAMES]           # ask, then the table
    python tools/with_engine.py .venv/bin/python -m benchmarks.second_catalogue --check [NAMES]   # only what each costs

What is the right answer is in `plants.yaml` (`answer`, and the expressions `named` and `located`), written before the
plant was asked for the first time. Nothing is asked twice: an outcome that lies below out/second_catalogue is kept.
The whole text lies beside it, for a reader who does not trust the expressions.

- named: a line that accuses (Cause, Change, Suspect, Located) contains the thing to change
- located: the answer contains the phase, and the function, call, file or group of things in which the cost is
- wrong: somebody else is accused as the cause; the image as a whole, in which the plant lies, is not somebody else
- nothing: none of these

Without tare, `--check` times both sides in turn with `docker run`, and compares the fastest of each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from scipy.stats import beta

from benchmarks.second_catalogue import image

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "out/second_catalogue"
APP = OUT / "app"
LIMIT = 420
ROUNDS = 3
PATHS = ":".join(f"/opt/l/{number}" for number in range(1, 401))
KINDS = ("named", "located", "wrong", "nothing")
ACCUSES = re.compile(r"^(Cause|Change|Suspect|Located|Part|A part)\b.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
CONVICTS = re.compile(r"^(Cause|Part|A part)(?: \(sure\))?:(?! it is in the image's software)", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true", help="only time both sides, without tare")
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds of one question")
    chosen = parser.parse_args()
    catalogue = yaml.safe_load((HERE / "plants.yaml").read_text())
    plants = [plant for plant in catalogue["plants"] if not chosen.names or plant["name"] in chosen.names]
    if missing := set(chosen.names) - {plant["name"] for plant in plants}:
        raise SystemExit(f"no plant is named {', '.join(sorted(missing))}")
    _write_programs(catalogue["programs"])
    image.build()
    rows = []
    for plant in plants:
        kept = OUT / plant["name"] / ("check.json" if chosen.check else "outcome.json")
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            plant = {**plant, "command": _filled(catalogue["programs"][plant["program"]]["command"])}
            _build(plant)
            outcome = check(plant) if chosen.check else ask(plant, chosen.limit)
            kept.write_text(json.dumps(outcome, indent=1))
        rows.append(json.loads(kept.read_text()))
        print(_line(rows[-1]), flush=True)
    if not chosen.check:
        print(_shares(rows))
    return 0


def check(plant: dict[str, Any]) -> dict[str, Any]:
    """Times the plain and the planted container in turn."""
    seconds: dict[str, list[float]] = {"plain": [], "planted": []}
    for _ in range(ROUNDS):
        for side, times in seconds.items():
            options = _options(plant, "container") if side == "planted" else []
            before = time.monotonic()
            line = ["docker", "run", "--rm", *options, _tag(plant, side), *plant["command"]]
            done = subprocess.run(
                ["timeout", "60", *line], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
            )
            times.append(round(time.monotonic() - before, 3))
            if done.returncode not in (0, 124):
                return {"name": plant["name"], "seconds": done.stderr.decode()[-500:], "cost": 0.0}
    cost = min(seconds["planted"]) / min(seconds["plain"]) - 1
    return {"name": plant["name"], "seconds": seconds, "cost": round(cost, 3)}


def ask(plant: dict[str, Any], limit: int) -> dict[str, Any]:
    """One `tare why`; it is interrupted at the limit, and then says what it knows so far."""
    folder = OUT / plant["name"]
    shutil.rmtree(folder / "stores", ignore_errors=True)
    line = [str(Path(sys.executable).with_name("tare")), "why", "-o", str(folder / "stores")]
    line += ["--image", _tag(plant, "planted"), "--against-image", _tag(plant, "plain")]
    line += [*_options(plant, "tare"), "--", *plant["command"]]
    before = time.monotonic()
    with (
        (folder / "progress.txt").open("w") as progress,
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=progress, text=True) as asked,
    ):
        try:
            text, _ = asked.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            asked.terminate()
            text, _ = asked.communicate()
    seconds = time.monotonic() - before
    (folder / "answer.txt").write_text(text)
    return {
        "name": plant["name"],
        "outcome": judge(plant, text),
        "answer": plant["answer"],
        "said": text.strip() or (folder / "progress.txt").read_text().strip()[-400:],
        "seconds": round(seconds),
        "load": os.getloadavg()[0],
        "command": line[1:],
    }


def judge(plant: dict[str, Any], text: str) -> str:
    """The written rule of the module's first lines."""
    text = re.sub(r"second-catalogue:\S+", "", text)  # The tag of an image has the name of its plant.
    accused = "\n".join(match.group() for match in ACCUSES.finditer(text))
    if re.search(plant["named"], _flat(accused)):
        return "named"
    if CONVICTS.search(text):
        return "wrong"
    return "located" if re.search(plant["located"], _flat(text)) else "nothing"


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _options(plant: dict[str, Any], kind: str) -> list[str]:
    """Options of the container: `quota: 0.5` is `--limit cpus=0.5` of tare and `--cpus 0.5` of the engine."""
    engine = {"quota": "cpus", "cpuset": "cpuset-cpus", "shm": "shm-size", "io-rate": "device-read-bps"}
    ours = {"quota": "cpus", "io-rate": "io_rate", "cpu-shares": "cpu_shares"}
    options = []
    for name, value in plant.get("limits", {}).items():
        if kind == "tare":
            options += ["--limit", str(value) if name == "ulimit" else f"{ours.get(name, name)}={value}"]
        else:
            options += [f"--{engine.get(name, name)}", str(value)]
    return options


def _write_programs(programs: dict[str, Any]) -> None:
    APP.mkdir(parents=True, exist_ok=True)
    for program in programs.values():
        for name, text in program.get("files", {}).items():
            if not (APP / name).exists() or (APP / name).read_text() != text:
                (APP / name).write_text(text)


def _filled(words: list[str]) -> list[str]:
    site = f"{sys.prefix}/lib/python3.{sys.version_info.minor}/site-packages"
    known = {"{app}": str(APP), "{python}": sys.executable, "{site}": site, "@paths@": PATHS}
    for name, value in known.items():
        words = [word.replace(name, value) for word in words]
    return words


def _tag(plant: dict[str, Any], side: str) -> str:
    return f"second-catalogue:{plant['name']}-{side}"


def _build(plant: dict[str, Any]) -> None:
    common = ["FROM " + image.BASE, f"COPY . {APP}/", *plant.get("both", [])]
    for side, lines in (("plain", common), ("planted", [*common, *plant.get("image", [])])):
        text = "\n".join(_filled(lines))
        env = {**os.environ, "DOCKER_BUILDKIT": "0"}
        build = ["docker", "build", "-q", "--network=none", "-t", _tag(plant, side), "-f", "-", str(APP)]
        # The context is the folder of programs; the file comes by its name, since both cannot be standard input.
        file = OUT / plant["name"] / f"Dockerfile.{side}"
        file.write_text(text + "\n")
        build[build.index("-f") + 1] = str(file)
        done = subprocess.run(build, capture_output=True, text=True, env=env, check=False)
        if done.returncode:
            raise SystemExit(f"{plant['name']}, {side}: {(done.stderr + done.stdout)[-1500:]}")


def _line(row: dict[str, Any]) -> str:
    if "cost" in row:
        return f"{row['name']:24} {row['cost']:+8.0%}  {row['seconds']}"
    return f"{row['name']:24} {row['outcome']:8} {row['seconds']:4} s  right: {row['answer']}\n{row['said']}\n"


def _shares(rows: list[dict[str, Any]]) -> str:
    counts = Counter(row["outcome"] for row in rows)
    lines = []
    for kinds in (("named",), ("named", "located"), ("wrong",), ("nothing",)):
        k, n = sum(counts[kind] for kind in kinds), len(rows)
        low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
        high = beta.ppf(0.975, k + 1, n - k) if k < n else 1.0
        lines.append(f"{' or '.join(kinds):18} {k} of {n}: {k / max(n, 1):.0%} [{low:.0%}, {high:.0%}]")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
