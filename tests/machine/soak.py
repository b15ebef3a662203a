"""`make soak`: one real hour of trials back to back, in one run, and whether anything but its records grows.

    python tests/machine/soak.py --seconds 3600 [--json FILE]

The run is a study of tiny trials on bare metal and in runc with a setting changed in each, on a pretended board
(pretended_board.py). It is looked at from outside while it goes on: memory and descriptors of the runner, bytes of the
store for each trial, and whatever else is there between two trials: files of the state folder, work folders in
/dev/shm, control groups and mounts by the names of its trials. The workload has a word that only this run has, so that
no other run, of today or of a crash before, has trials of the same names. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

STUDY = """\
study: soak
platform: [bare, runc]
workload: {command: {argv: ["true", TOKEN], attach: none}}
control: {dirty: {expire: 10 s}}
probes: []
repeat: 5000
aa: false
"""
EVERY_S = 5.0
# What a trial may leave in memory: the runner knows every record, for the rules that look at earlier trials.
MOST_BYTES_A_TRIAL, MOST_NOISE_BYTES = 16 << 10, 4 << 20
KNOWN = ("trials", "catalogue", "plan.json", "report", "store.json", "study.yaml")


@dataclass(frozen=True)
class Look:
    """The run at one moment."""

    at_s: float
    trials: int
    memory_bytes: int  # of the runner alone
    descriptors: int
    threads: int
    trial_bytes: int  # of all sealed trials
    other_bytes: int  # of the state folder, and of what the store has beside them and its catalogue
    groups: int
    mounts: int
    work_folders: int


def files_below(folder: Path) -> dict[Path, int]:
    """Every file with its size; what goes meanwhile is left out."""
    found = {}
    for above, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                found[Path(above, name)] = Path(above, name).lstat().st_size
    return found


def tare_groups() -> list[str]:
    return [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names if name.startswith("tare-")]


class Soak:
    """One board, one run, many looks."""

    def __init__(self, folder: Path) -> None:
        os.environ |= {"TARE_STATE": str(folder / "state"), "TARE_LOCK_DIR": str(folder / "locks")}
        from pretended_board import PretendedBoard

        (folder / "board").mkdir()
        self.folder, self.board = folder, PretendedBoard.laid(folder / "board")
        study = self.board.folder / "soak.yaml"
        study.write_text(STUDY.replace("TOKEN", f"soak-{secrets.token_hex(8)}"))
        study.chmod(0o600)
        self.store = self.board.folder / "store"
        self.looks: list[Look] = []

    def run(self, seconds: float, every_s: float = EVERY_S) -> dict[str, Any]:
        begun_s = time.monotonic()
        log = self.folder / "log"
        with log.open("w") as output:
            runner = self.board.begin("run", "soak.yaml", "-o", "store", output=output, TARE_GUARDIAN="on")
            try:
                while runner.poll() is None and time.monotonic() - begun_s < seconds:
                    time.sleep(every_s)
                    if (self.store / "trials").is_dir():
                        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                            self.looks.append(self.look(runner.pid, time.monotonic() - begun_s))
            finally:
                ended = runner.poll()
                runner.send_signal(signal.SIGINT)
                runner.wait(timeout=300)
        if not (self.store / "trials").is_dir():
            return {"wrong": [f"no store was made; the run ended with {ended}"], "log": log.read_text()[-2000:]}
        last = self.look(0, time.monotonic() - begun_s)
        return self.judged(last, time.monotonic() - begun_s, ended, log)

    def look(self, pid: int, at_s: float) -> Look:
        status = {}
        if pid:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            status = dict(line.split(":", 1) for line in lines)
        trials = [path.name for path in (self.store / "trials").iterdir()]
        ours = {f"tare-{name[:8]}" for name in trials}
        table = Path(f"/proc/{pid or 'self'}/mounts").read_text().splitlines()
        groups = [name for name in tare_groups() if name[:13] in ours]
        kept = {path.relative_to(self.store): size for path, size in files_below(self.store).items()}
        sealed = sum(size for path, size in kept.items() if path.parts[0] == "trials")
        other = sum(size for path, size in kept.items() if not path.parts[0].startswith(KNOWN))
        return Look(
            round(at_s, 1), len(trials), int(status.get("VmRSS", "0 kB").split()[0]) * 1024,
            len(list(Path(f"/proc/{pid}/fd").iterdir())) if pid else 0, int(status.get("Threads", "0")),
            sealed, other + sum(files_below(self.folder / "state").values()), len(groups),
            sum(str(self.folder / "state") in line for line in table),
            sum(path.name[:13] in ours for path in Path("/dev/shm").glob("tare-*")),
        )  # fmt: skip

    def judged(self, last: Look, took_s: float, ended: int | None, log: Path) -> dict[str, Any]:
        """First and last quarter compared; what must be nothing when the run has ended."""
        from tare.records.store import Store

        looks = [look for look in self.looks if look.trials > 4]  # after the first trials have loaded what they use
        quarter = max(1, len(looks) // 4)
        first, final = looks[:quarter], looks[-quarter:]
        with Store.open(self.store) as store:
            states = [record.state for record in store.records()]
            problems = store.verify()

        def middle(part: list[Look], name: str) -> float:
            return statistics.median(getattr(look, name) for look in part) if part else 0.0

        between = middle(final, "trials") - middle(first, "trials")
        grown = middle(final, "memory_bytes") - middle(first, "memory_bytes")
        names = [name for name in Look.__dataclass_fields__ if name not in ("at_s", "trials")]
        result: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d"), "seconds": round(took_s), "trials": last.trials, "looks": len(looks),
            "states": {state: states.count(state) for state in sorted(set(states))},
            "first quarter": {name: middle(first, name) for name in names},
            "last quarter": {name: middle(final, name) for name in names},
            "memory of a trial": round(grown / (between or 1)),
            "bytes of a trial": [round(middle(part, "trial_bytes") / (middle(part, "trials") or 1))
                                 for part in (first, final)],
            "trials a minute": [round(rate, 1) for rate in self.rates(looks)],
            "after": asdict(last), "settings left": sorted(self.board.moved()), "problems": problems,
        }  # fmt: skip
        result["wrong"] = [*self.wrong(result, ended), *problems]
        if result["wrong"]:
            result["log"] = log.read_text(errors="replace")[-2000:]
        return result

    def rates(self, looks: list[Look]) -> list[float]:
        """Trials a minute in the first and the last quarter."""
        quarter = max(2, len(looks) // 4)
        return [
            60 * (part[-1].trials - part[0].trials) / max(part[-1].at_s - part[0].at_s, 1e-9)
            for part in (looks[:quarter], looks[-quarter:])
            if len(part) > 1
        ]

    def wrong(self, found: dict[str, Any], ended: int | None) -> list[str]:
        first, final, after = found["first quarter"], found["last quarter"], found["after"]
        wrong = [f"the run ended by itself with {ended}"] if ended is not None else []
        grown_bytes = final["memory_bytes"] - first["memory_bytes"]
        if found["memory of a trial"] > MOST_BYTES_A_TRIAL and grown_bytes > MOST_NOISE_BYTES:
            wrong.append(f"memory grows by {found['memory of a trial']} bytes with each trial")
        wrong += [
            f"{name} grew from {first[name]} to {final[name]}"
            for name, most in (("descriptors", 2), ("threads", 2), ("groups", 3), ("mounts", 4), ("work_folders", 1))
            if final[name] > first[name] + most
        ]
        wrong += [f"{name} left: {after[name]}" for name in ("groups", "mounts", "work_folders") if after[name]]
        wrong += [f"settings left: {found['settings left']}"] if found["settings left"] else []
        unsure = {state: n for state, n in found["states"].items() if state not in ("ok", "suspect", "invalid")}
        return wrong + ([f"trials that did not end well: {unsure}"] if sum(unsure.values()) > 1 else [])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--every", type=float, default=EVERY_S)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tare-soak-", dir="/var/tmp") as folder:
        soak = Soak(Path(folder))
        result = soak.run(asked.seconds, asked.every)
        if asked.json:
            asked.json.parent.mkdir(parents=True, exist_ok=True)
            asked.json.write_text(json.dumps(result | {"series": [asdict(look) for look in soak.looks]}, indent=1))
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return bool(result["wrong"])


if __name__ == "__main__":
    sys.exit(main())
