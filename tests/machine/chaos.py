"""`make chaos`: kills processes of runs at random moments, again and again, and looks at what is left.

    python tests/machine/chaos.py --kills 1000 [--seed 7] [--platforms bare,runc,docker] [--json FILE]

Each round begins a run on a pretended board with every setting changed, on bare metal, in runc or in docker (in an
engine that the run starts itself), kills one process of it (the runner, a child of it, its guardian, or all of them at
once) at a random moment, and then waits for the guardian or runs `tare device restore`. Counted is what must not be:
settings that stay changed, processes and control groups that stay, journal lines that stay pending, trials that are
lost or there twice. Only processes that this program started are killed, by their number. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

STUDY = """\
study: chaos
platform: {platform}
workload: {{command: {{argv: [sleep, "{seconds}"], attach: none}}}}
control: {{power_mode: MODE_15W, dirty: {{expire: 10 s}}, fan: 60}}
probes: []
repeat: 2
aa: false
"""
RESTORED_WITHIN_S = 60.0


def descendants(pid: int) -> list[int]:
    """Every process below this one, by the kernel's own list of children."""
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        try:
            tasks = list(Path(f"/proc/{each}/task").iterdir())
        except OSError:  # it has just ended
            continue
        for task in tasks:
            with contextlib.suppress(OSError):
                children = [int(word) for word in (task / "children").read_text().split()]
                found += children
                waiting += children
    return found


def is_guardian(pid: int) -> bool:
    try:
        return b"tare.trial.undo.guardian" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Chaos:
    """One board, many deaths."""

    def __init__(self, folder: Path, seed: int, platforms: Sequence[str] = ("bare", "runc")) -> None:
        self.platforms = platforms
        os.environ |= {"TARE_STATE": str(folder / "state"), "TARE_LOCK_DIR": str(folder / "locks")}
        from pretended_board import PretendedBoard

        self.folder, self.chance = folder, random.Random(seed)
        (folder / "board").mkdir()
        self.board = PretendedBoard.laid(folder / "board")
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def round(self, number: int) -> None:
        platform = self.chance.choice(self.platforms)
        whom = self.chance.choice(["runner", "runner", "child", "guardian and runner", "all"])
        seconds = f"1.{number:06d}"  # only this round's workloads sleep so long
        study = self.board.folder / "chaos.yaml"
        study.write_text(STUDY.format(platform=platform, seconds=seconds))
        study.chmod(0o600)
        store = f"store-{number}"
        runner = self.board.begin("run", "chaos.yaml", "-o", store, TARE_GUARDIAN="on")
        below: list[int] = []
        turned = self.chance.random() < 0.75  # mostly once settings are changed, else at any moment from the start on
        started_s = time.monotonic()
        until_s = started_s + (90.0 if turned else self.chance.uniform(0.2, 10.0))
        while time.monotonic() < until_s and runner.poll() is None:
            if turned and self.board.moved():
                turned, until_s = False, time.monotonic() + self.chance.uniform(0.0, 3.0)
            below = descendants(runner.pid)
            time.sleep(0.02)
        was_running = runner.poll() is None
        self.counts["with settings changed"] += bool(self.board.moved())
        guardians = [pid for pid in below if is_guardian(pid)]
        self._kill(whom, runner.pid, [pid for pid in below if pid not in guardians], guardians)
        if whom == "child" and was_running:
            runner.send_signal(signal.SIGTERM)
        runner.communicate(timeout=120)
        self.counts[f"{whom if was_running else 'ended before'}, {platform}"] += 1
        guarded = whom in ("runner", "child")
        self._look(f"round {number}, {whom}, {platform}", store, seconds, guarded=guarded)

    def _kill(self, whom: str, runner: int, below: list[int], guardians: list[int]) -> None:
        if whom == "runner":
            kill(runner)
        elif whom == "child":
            kill(self.chance.choice(below)) if below else None
        else:
            for pid in [*guardians, runner, *(below if whom == "all" else [])]:
                kill(pid)

    def _look(self, what: str, store: str, seconds: str, *, guarded: bool) -> None:
        until_s = time.monotonic() + RESTORED_WITHIN_S
        while guarded and time.monotonic() < until_s and (self.board.moved() or self.pending()):
            time.sleep(0.1)
        if self.board.moved() or self.pending():
            self.counts["restored by the command"] += 1
            self.board.begin("device", "restore").communicate(timeout=120)
        left = {
            "settings": sorted(self.board.moved()),
            "pending": self.pending(),
            "processes": self.sleeping(seconds),
            "trials": self.trials(store),
        }
        self.wrong += [f"{what}: {name} {found}" for name, found in left.items() if found]

    def pending(self) -> int:
        from tare.base.host import LocalHost
        from tare.trial.device import device_id
        from tare.trial.undo.journal import Journal

        return len(Journal(Path(os.environ["TARE_STATE"]) / "devices" / device_id(LocalHost())).pending())

    def sleeping(self, seconds: str) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if (path / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                    found.append(int(path.name))
            except OSError:
                continue
        return found

    def trials(self, store: str) -> str:
        """What is wrong with the records: a store that cannot be read, or two finished attempts at one trial."""
        from tare.base.errors import TareError
        from tare.records.store import Store

        path = self.board.folder / store
        if not (path / "study.yaml").exists() and not any(path.glob("*")):
            return ""
        try:
            with Store.open(path) as opened:
                finished = Counter(record.trial for record in opened.records() if record.state == "ok")
                return "; ".join([*opened.verify(), *(f"{trial} twice" for trial, n in finished.items() if n > 1)])
        except TareError as error:
            return "" if "no store" in str(error) or "not a store" in str(error) else str(error)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--platforms", default="bare,runc,docker", help="docker: in an engine that the run starts itself"
    )
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tare-chaos-", dir="/var/tmp") as folder:
        chaos = Chaos(Path(folder), asked.seed, asked.platforms.split(","))
        for number in range(asked.kills):
            chaos.round(number)
            result: dict[str, Any] = {
                "date": time.strftime("%Y-%m-%d"), "seed": asked.seed, "rounds": number + 1,
                "kills": dict(chaos.counts), "wrong": chaos.wrong,
            }  # fmt: skip
            if asked.json:
                asked.json.write_text(json.dumps(result, indent=1))
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return bool(chaos.wrong)


if __name__ == "__main__":
    sys.exit(main())
