"""A study over a fleet that is not there: real dask, TLS, workers, store, ledger and merging; devices that pretend.

python -m benchmarks.fleet --devices 10 --devices 100 --trials 10    what the controller needs, at each size
python -m benchmarks.fleet --devices 1000 --idle 20                  what a worker costs that has nothing to do

Each size runs in a process of its own. At the end every byte of the store is looked at, and every trial is accounted
for: none lost, none twice.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import pretended_devices
from benchmarks.fleet_figures import MergeClock, accounted, cpu_s, delays, processes, profiled, pss_mb, timed, told
from benchmarks.pretended_devices import CLAIMS, ROOT, SCENE, TEMPLATE, Scene
from benchmarks.rounds import Rounds

HERE = Path(__file__).parent.parent
PATIENCE_S = 8.0  # with a device that does not answer; more where thousands of devices share a few cores
STUDY = "study: pretended\nplatform: bare\nworkload: 'null'\nprobes: [cpu]\nrepeat: {trials}\naa: false\n"


class Quiet:
    """A teller that counts."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def started(self, trials: int, devices: int) -> None: ...
    def ended(self, device: str, label: str, state: str, seconds: float) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


# The scene


def sealed_trial(folder: Path) -> Path:
    """One trial, run here as on any device: its sealed folder."""
    study = folder / "one.yaml"
    study.write_text(STUDY.format(trials=1))
    argv = [sys.executable, "-P", "-m", "tare.cli", "run", str(study), "-o", str(folder / "one")]
    env = os.environ | {"TARE_STATE": str(folder / "state"), "TARE_LOCK_DIR": str(folder / "lock")}
    said = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert said.returncode in (0, 1), said.stderr  # 1: one trial is too few for a verdict
    (sealed, *_) = sorted((folder / "one" / "trials").iterdir())
    return sealed


def lay_out(root: Path, template: Path, scene: Scene) -> None:
    (root / CLAIMS).mkdir(parents=True)
    shutil.copytree(template, root / TEMPLATE / template.name)
    (root / SCENE).write_text(json.dumps(asdict(scene)))
    os.environ[ROOT] = str(root)
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]  # so that workers find the pretended line
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def inventory(folder: Path, devices: int) -> Path:
    path = folder / "devices.yaml"
    entries = (f"- {{name: dev-{n:04}, address: 10.77.{n // 250}.{n % 250 + 1}, type: board}}" for n in range(devices))
    path.write_text("devices:\n" + "\n".join(entries) + "\n")
    return path


def vanishing(devices: int, trials: int) -> dict[str, int]:
    """A few devices that are not heard of any more from some trial on."""
    few = max(1, devices // 200)
    return {f"dev-{(n * 97 + 5) % devices:04}": min(trials, 2 + n % 4) for n in range(few)}


def kill_at_work(pid: int, root: Path, devices: int) -> None:
    """Kill a process of workers once as many trials as there are devices have begun, however long that takes here."""
    while len(list((root / CLAIMS).glob("*/[!.]*"))) < devices:
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)


# One size


def run_once(
    folder: Path, devices: int, trials: int, root: Path, kill: bool, profile: Path | None, patience_s: float
) -> dict[str, Any]:
    """As `tare run --fleet` does it, and what that took."""
    from tare.api.running import open_store, row, study_text
    from tare.fleet.cluster import OwnCluster
    from tare.fleet.incoming import name_on_devices
    from tare.fleet.interruption import Interruption
    from tare.fleet.inventory import Task, factors, load_inventory, on_device
    from tare.fleet.run import FleetRun
    from tare.plan.matrix import cells
    from tare.plan.matrix import trials as trials_of
    from tare.studies.load import loads

    text, teller, took_s = STUDY.format(trials=trials), Quiet(), {}
    study = loads(text, "pretended.yaml")
    with timed(took_s, "inventory"):
        boards = load_inventory(inventory(folder, devices)).devices
    with timed(took_s, "start"):
        cluster = OwnCluster([board.name for board in boards])
    try:
        with open_store(study, text, folder / "store") as store:
            with timed(took_s, "plan"):
                planned = trials_of(study, cells(study))
                plans = {board: on_device(planned, factors(board)) for board in boards}
                store.plan([row(trial) for each in plans.values() for trial in each])
            task = Task(study_text(study), "pretended.yaml", name_on_devices(store), os.urandom(4).hex())
            fleet = FleetRun(
                study, task, plans, store, cluster, teller, Interruption(teller.note), patience_s,
                pretended_devices.drive,
            )  # fmt: skip
            merging = MergeClock(fleet)
            with timed(took_s, "ready"):
                fleet.collect()
                fleet.ready()
            if kill:
                victim = next(iter(cluster.pids.values()))
                threading.Thread(target=kill_at_work, args=(victim, root, devices), daemon=True).start()
            pids = {"scheduler": [cluster.scheduler_pid], "workers": sorted(set(cluster.pids.values()))}
            before = processes({"controller": [os.getpid()], **pids})
            with timed(took_s, "run"), profiled(profile):
                outcome = fleet.run()
            pids["workers"] = sorted(set(cluster.pids.values()))
            found = {"outcome": asdict(outcome), "gone": sorted(fleet.drained)}
            found["processes"] = processes({"controller": [os.getpid()], **pids}, before)
            return found | {
                "took_s": took_s,
                "merge_s_per_1000": merging.per_1000_s,
                "workers_lost": sum("the worker that drove it died" in note for note in teller.notes),
            }
    finally:
        cluster.close()


def measured(
    devices: int,
    trials: int,
    trial_s: float,
    *,
    kill: bool = False,
    profile: Path | None = None,
    again: bool = False,
    patience_s: float = PATIENCE_S,
) -> dict[str, Any]:
    fast = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tare-pretended-") as name, tempfile.TemporaryDirectory(dir=fast) as there:
        folder, root = Path(name), Path(there, "devices")
        gone = vanishing(devices, trials)
        lay_out(root, sealed_trial(folder), Scene(trial_s, vanish=gone))
        sent = sum(path.stat().st_size for path in (root / TEMPLATE).glob("*/*"))
        found = run_once(folder, devices, trials, root, kill, profile, patience_s)
        found |= {"devices": devices, "trials": trials, "record_kb": sent / 1e3, "delay": delays(root)}
        found["accounted"] = accounted(folder, root, devices, trials)
        assert set(found["accounted"]["left_on"]) <= set(gone) | set(found["gone"])
        if again:  # the devices are there again: what they have is collected, and the rest is run
            (root / SCENE).write_text(json.dumps(asdict(Scene(trial_s))))
            found["again"] = run_once(folder, devices, trials, root, False, None, patience_s)["outcome"]
            found["accounted_again"] = accounted(folder, root, devices, trials)
        return found


def idle(devices: int, seconds: float) -> dict[str, Any]:
    """Memory (shared pages counted once) and CPU of the workers while they wait."""
    from tare.fleet.cluster import OwnCluster

    cluster = OwnCluster([f"dev-{n:04}" for n in range(devices)])
    try:
        pids = sorted(set(cluster.pids.values()))
        time.sleep(3)
        before_s, scheduler_s = sum(map(cpu_s, pids)), cpu_s(cluster.scheduler_pid)
        time.sleep(seconds)
        spent_s, scheduler_s = sum(map(cpu_s, pids)) - before_s, cpu_s(cluster.scheduler_pid) - scheduler_s
        memory = {"workers_pss_mb": sum(map(pss_mb, pids)), "scheduler_pss_mb": pss_mb(cluster.scheduler_pid)}
        cpu = {"workers_cpu_share": spent_s / seconds, "scheduler_cpu_share": scheduler_s / seconds}
        return {"devices": devices, "processes": len(pids), **memory, **cpu}
    finally:
        cluster.close()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices", type=int, action="append")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--trial-s", type=float, default=3.0, help="how long a pretended trial takes")
    parser.add_argument("--patience-s", type=float, default=PATIENCE_S, help="with a device that does not answer")
    parser.add_argument("--idle", type=float, help="only wait so many seconds, and say what the workers take")
    parser.add_argument("--kill", action="store_true", help="kill a process of workers in mid-run")
    parser.add_argument("--again", action="store_true", help="a second run, which collects what vanished devices have")
    parser.add_argument("--profile", type=Path, help="where to write cProfile's figures of the controller")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    sizes = given.devices or [10, 100]
    if len(sizes) > 1:
        before = ("", *arguments)
        rest = [word for word, last in zip(arguments, before, strict=False) if "--devices" not in (word, last)]
        for size in sizes:
            subprocess.run([sys.executable, "-m", "benchmarks.fleet", "--devices", str(size), *rest], check=True)
        return
    found = (
        idle(sizes[0], given.idle) if given.idle
        else measured(
            sizes[0], given.trials, given.trial_s, kill=given.kill, profile=given.profile, again=given.again,
            patience_s=given.patience_s,
        )
    )  # fmt: skip
    if not given.idle:
        kept = Rounds()
        kept.add(
            f"controller, {sizes[0]} devices", found["processes"]["controller"]["cpu_s"] / found["accounted"]["kept"]
        )
        kept.keep(f"fleet-{sizes[0]}")
    print(json.dumps(found) if given.json else told(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
