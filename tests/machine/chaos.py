"""`make chaos`: kills processes of runs at random moments, again and again, and looks at what is left.

    python tests/machine/chaos.py --kills 1000 [--seed 7] [--platforms bare,runc,docker,fleet] [--json FILE]

A round begins a run with every setting changed: on a pretended board on bare metal, in runc or in docker, or on a
device of a fleet, which is an sshd with a network, processes and settings of its own. Up to three processes below the
runner are killed at random moments (sampler, guardian, workload, container's and engine's processes, workers, ssh),
and then the runner, or the runner and its guardian, or all of them at once. Then the guardian is waited for, or, if it
was killed, `tare device restore` runs. Some rounds continue the study that an earlier one was killed in, and some run
it to its end. Counted is what must not be: settings that stay changed, lines of the journal that stay pending,
processes, containers, control groups, mounts and work folders that stay, trials that were there and are lost, trials
that are there twice or, at the study's end, not at all. Python and tare are loaded once, in a process from which each
run is forked (driver_board.py, `serve`). Only processes that this program started are killed, by their number. Needs
root. Each docker run starts an engine of its own, among the board's mounts, or finds the one of a run that was killed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

TRIALS = 4  # of a fleet: two on each of two devices
STUDY = """\
study: chaos
platform: {platform}
workload: {{command: {{argv: [sleep, "{seconds}"], attach: none}}}}
control: {{{control}}}
probes: []
repeat: {repeat}
aa: false
"""
BOARD = "power_mode: MODE_15W, dirty: {expire: 10 s}, fan: 60"
DEVICE = "dirty: {ratio: 5 %}"
RESTORED_WITHIN_S = 90.0
ENDED_WITHIN_S = 900.0
_KINDS = {b"tare.trial.undo.guardian": "guardian", b"tare.trial.sampler": "sampler", b"dockerd": "engine",
          b"containerd": "engine", b"tare.fleet.dask_processes": "worker", b"ssh": "ssh", b"sleep": "workload",
          b"runc": "runc", b"driver_board": "sampler or other fork"}  # fmt: skip


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


def words_of(pid: int | str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def kind_of(pid: int) -> str:
    words = words_of(pid)
    return next((kind for word, kind in _KINDS.items() if word in words), "other")


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def sleeping(seconds: str) -> list[int]:
    found = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in found if words_of(pid).split(b"\0")[:2] == [b"sleep", seconds.encode()]]


class Ended(Exception):
    """A run did not end in its time."""


class Served:
    """Commands on a board, each a fork of one process that has tare loaded."""

    def __init__(self, board: Any) -> None:
        self._process = subprocess.Popen(
            board.driver("serve"), cwd=board.folder, env=board.environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._heard, self._begun, self._codes = b"", 0, dict[int, int]()
        self.runs: list[int] = []

    def begin(self, words: Sequence[str], log: Path, **environment: str) -> int:
        assert self._process.stdin is not None
        request = {"words": words, "log": str(log), "env": environment}
        self._begun = 0
        os.write(self._process.stdin.fileno(), json.dumps(request).encode() + b"\n")
        until_s = time.monotonic() + ENDED_WITHIN_S
        while not self._begun:
            assert self._process.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.01)
            self._hear()
        self.runs.append(self._begun)
        return self._begun

    def ended(self, pid: int) -> bool:
        self._hear()
        return pid in self._codes

    def wait(self, pid: int) -> int:
        until_s = time.monotonic() + ENDED_WITHIN_S
        while not self.ended(pid):
            if time.monotonic() > until_s:
                raise Ended(f"pid {pid} did not end within {ENDED_WITHIN_S:g} s")
            time.sleep(0.02)
        return self._codes[pid]

    def _hear(self) -> None:
        assert self._process.stdout is not None
        while read := _read(self._process.stdout.fileno()):
            self._heard += read
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            what, pid, *code = line.split()
            if what == b"begun":
                self._begun = int(pid)
            else:
                self._codes[int(pid)] = int(code[0])

    def mounts(self) -> str:
        """The board's: nobody else sees them."""
        return Path(f"/proc/{self._process.pid}/mounts").read_text()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return b""


class OnBoard:
    """Runs on the pretended board; its settings are plain files."""

    def __init__(self, folder: Path) -> None:
        os.environ |= {"TARE_STATE": str(folder / "state"), "TARE_LOCK_DIR": str(folder / "locks")}
        os.environ.pop("DOCKER_HOST", None)  # an engine outside of the board's mounts cannot start a container on them
        self.engine, self.counts = folder / "state/engine", Counter[str]()
        from pretended_board import PretendedBoard

        (folder / "board").mkdir()
        self.board = PretendedBoard.laid(folder / "board")
        self.folder, self.log = self.board.folder, folder / "log"
        self.served = Served(self.board)
        self.ended, self.wait = self.served.ended, self.served.wait

    def study(self, platform: str, seconds: str) -> str:
        return STUDY.format(platform=platform, seconds=seconds, control=BOARD, repeat=TRIALS)

    def begin(self, study: Path, store: Path) -> int:
        self.log.unlink(missing_ok=True)
        return self.served.begin(["run", str(study), "-o", str(store)], self.log, TARE_GUARDIAN="on")

    def below(self, runner: int) -> list[int]:
        own = f"{self.engine}/".encode()  # an engine and its shims are nobody's children
        return descendants(runner) + [
            int(path.name) for path in Path("/proc").glob("[0-9]*") if own in words_of(path.name)
        ]

    def moved(self) -> bool:
        return bool(self.board.moved() or self.pending())

    def restore(self) -> None:
        self.wait(self.served.begin(["device", "restore"], self.log))

    def left(self) -> dict[str, Any]:
        mounts = [line.split()[1] for line in self.served.mounts().splitlines()]
        data = str(self.engine / "data")  # an engine's mount of its own folder, for as long as that folder is there
        mounted = [place for place in mounts if place.startswith(os.environ["TARE_STATE"]) and place != data]
        pending = self.pending()
        return {
            "settings": sorted(self.board.moved()),
            "pending": pending,
            "mounts": mounted,
            "containers": self._containers(),
        }

    def _containers(self) -> list[str]:
        """Those that the engine knows, if it runs: one that was killed leaves folders that it then does not know."""
        from tare.base.host import LocalHost
        from tare.drivers.containers import client, engine

        if not self.engine.exists() or engine.why_silent(engine.own_socket()) is not None:
            return []
        self.counts["looks at an engine's containers"] += 1
        return client.docker(LocalHost(), engine.own_socket()).checked("list them", "ps", "--all", "--quiet").split()

    def pending(self) -> int:
        from tare.base.host import LocalHost
        from tare.trial.device import device_id
        from tare.trial.undo.journal import Journal

        return len(Journal(Path(os.environ["TARE_STATE"]) / "devices" / device_id(LocalHost())).pending())

    def close(self) -> None:
        for run in self.served.runs:
            if not self.served.ended(run):  # this program was interrupted
                os.kill(run, signal.SIGTERM)
                self.wait(run)
        self.restore()  # which also stops the engine of a run that was killed
        self.served.close()


class OnFleet:
    """Runs over two devices of a fleet; what is killed may be on the controller or on a device."""

    def __init__(self, folder: Path) -> None:
        from sshd_devices import Fleet

        (folder / "fleet").mkdir()
        self.folder, self.log = folder / "fleet", folder / "fleet.log"
        self.fleet = Fleet(self.folder, ("one", "two"))
        self._runs: dict[int, subprocess.Popen[bytes]] = {}

    def study(self, platform: str, seconds: str) -> str:
        return STUDY.format(platform="bare", seconds=seconds, control=DEVICE, repeat=TRIALS // 2)

    def begin(self, study: Path, store: Path) -> int:
        from fleet_runs import TARE

        with self.log.open("wb") as log:
            run = subprocess.Popen(
                [*TARE, "run", str(study), "--fleet", str(self.fleet.inventory), "-o", str(store)],
                stdout=log, stderr=log, env=os.environ | {"TARE_STATE": str(self.folder / "state")},
            )  # fmt: skip
        self._runs[run.pid] = run
        return run.pid

    def below(self, runner: int) -> list[int]:
        devices = [pid for device in self.fleet.devices.values() for pid in descendants(device._machine.pid)]
        own = str(self.folder).encode()  # not sshd itself, nor a device's first process: they are nothing of a run
        words = {pid: words_of(pid).replace(own, b"") for pid in devices}
        mine = [pid for pid in devices if b"tare" in words[pid] or words[pid].startswith(b"sleep\x002.")]
        return descendants(runner) + mine

    def ended(self, runner: int) -> bool:
        return self._runs[runner].poll() is not None

    def wait(self, runner: int) -> int:
        try:
            return self._runs[runner].wait(ENDED_WITHIN_S)
        except subprocess.TimeoutExpired as error:
            raise Ended(str(error)) from error

    def moved(self) -> bool:
        from sshd_devices import KNOBS

        return any(device.knobs() != KNOBS for device in self.fleet.devices.values())

    def restore(self) -> None:
        own = ["env", "-u", "TARE_LOCK_DIR", "TARE_STATE=/var/lib/tare", sys.executable, "-P", "-m", "tare.cli"]
        for device in self.fleet.devices.values():
            device.begin(*own, "device", "restore").wait(ENDED_WITHIN_S)

    def left(self) -> dict[str, Any]:
        from sshd_devices import KNOBS

        devices = self.fleet.devices.items()
        until_s = time.monotonic() + ENDED_WITHIN_S  # a device ends its trial by itself, without its controller
        while time.monotonic() < until_s and any(device.pids("tare") for _, device in devices):
            time.sleep(0.2)
        settings = {name: device.knobs() for name, device in devices if device.knobs() != KNOBS}
        return {"settings": settings, "on devices": [pid for _, device in devices for pid in device.pids("tare")]}

    def close(self) -> None:
        for run in self._runs.values():
            run.kill()
            run.wait()
        self.fleet.close()


class Chaos:
    """Runs on a board and over a fleet, and many deaths."""

    def __init__(self, folder: Path, seed: int, platforms: Sequence[str] = ("bare", "runc")) -> None:
        self.folder, self.chance, self.platforms = folder, random.Random(seed), platforms
        self.board = OnBoard(folder)
        self.fleet = OnFleet(folder) if "fleet" in platforms else None
        self.kills: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._open: dict[str, tuple[Path, str, int]] = {}  # platform -> store, seconds, rounds in it

    def round(self, number: int) -> None:
        platform = self.chance.choice(self.platforms)
        where = self.fleet if platform == "fleet" and self.fleet else self.board
        begun = self._open.pop(platform, None)  # only this store's workloads sleep so long
        whole = 2 if where is self.fleet else 0  # a device is found changed only while its workload runs
        store, seconds, rounds = begun or (self.folder / f"store-{number}", f"{whole}.3{number:05d}", 0)
        study = where.folder / f"{platform}.yaml"
        study.write_text(where.study(platform, seconds))
        study.chmod(0o600)
        self.counts[f"rounds, {platform}"] += 1
        what = f"round {number}, {platform}"
        try:
            last = rounds >= self.chance.randint(1, 4)
            if last:
                begun_ns, there = time.monotonic_ns(), _sealed(store)
                where.wait(where.begin(study, store))
                guarded = True
                said = where.log.read_text(errors="replace")[-800:]
                self.wrong += [f"{what}: {each}; {said}" for each in self._missing(store, begun_ns, there, platform)]
            else:
                guarded = self._killed(where, study, store, platform)
                self._open[platform] = (store, seconds, rounds + 1)
            self._look(where, what, store, seconds, guarded=guarded)
        except Ended as error:
            self.wrong.append(f"{what}: {error}; {where.log.read_text(errors='replace')[-800:]}")

    def _killed(self, where: OnBoard | OnFleet, study: Path, store: Path, platform: str) -> bool:
        """Whether its guardian was left alone, or the run ended by itself."""
        runner = where.begin(study, store)
        turned = self.chance.random() < 0.75  # mostly once settings are changed, else at any moment from the start on
        until_s = time.monotonic() + (ENDED_WITHIN_S if turned else self.chance.uniform(0.1, 6.0))
        while time.monotonic() < until_s and not where.ended(runner) and not (turned and where.moved()):
            time.sleep(0.02)
        guarded = True
        for _ in range(self.chance.choice([0, 1, 2, 3])):
            time.sleep(self.chance.uniform(0.0, 1.5))
            if where.ended(runner) or not (below := where.below(runner)):
                continue
            by_kind = {kind_of(pid): pid for pid in below}  # else the many threads of work hide the few guardians
            kind, pid = self.chance.choice(sorted(by_kind.items()))
            guarded = guarded and kind != "guardian"
            self.counts["with settings changed"] += where.moved()
            kill(pid)
            self.kills[f"{kind}, {platform}"] += 1
        time.sleep(self.chance.uniform(0.0, 2.0))
        if where.ended(runner):
            self.counts["ended before the last kill"] += 1
            return guarded
        whom = self.chance.choice(["runner", "runner", "guardian and runner", "all", "asked to end"])
        below = where.below(runner)
        there = _sealed(store)
        self.counts["with settings changed"] += where.moved()
        if whom == "asked to end":
            with contextlib.suppress(ProcessLookupError):
                os.kill(runner, signal.SIGTERM)
            self.counts[whom] += 1
        else:
            guardians = [pid for pid in below if kind_of(pid) == "guardian"]
            targets = {"runner": [runner], "all": [*guardians, runner, *below]}.get(whom, [*guardians, runner])
            for pid in targets:
                kill(pid)
            self.kills[f"{whom}, {platform}"] += len(set(targets))
            guarded = guarded and whom == "runner"
        where.wait(runner)
        if lost := there - _sealed(store):
            self.wrong.append(f"{store.name}, {platform}: lost {sorted(lost)}")
        return guarded

    def _look(self, where: OnBoard | OnFleet, what: str, store: Path, seconds: str, *, guarded: bool) -> None:
        until_s = time.monotonic() + (RESTORED_WITHIN_S if guarded or where is self.fleet else 0.0)
        while time.monotonic() < until_s and where.moved():
            time.sleep(0.1)
        if guarded and where.moved() and where is self.board:
            self.wrong.append(f"{what}: the guardian did not restore it")
        names = {f"tare-{name[:8]}" for name in _trials(store)}
        if where.moved() or not guarded:
            self.counts["restored by the command"] += 1
            where.restore()
        left = {**where.left(), "trials": _damaged(store), "processes": sleeping(seconds)}
        groups = [path for path, _, _ in os.walk("/sys/fs/cgroup") if Path(path).name[:13] in names]
        left["groups"] = groups if where is self.board else []
        left["work folders"] = [str(path) for path in Path("/dev/shm").glob("tare-*") if path.name[:13] in names]
        self.wrong += [f"{what}, guarded {guarded}: {name} {found}" for name, found in left.items() if found]

    def _missing(self, store: Path, begun_ns: int, there: set[str], platform: str) -> list[str]:
        """What is wrong with the records of a study that ran to its end, in a run in which nothing was killed."""
        from tare.records.store import Store

        if damaged := _damaged(store) or ("" if store.exists() else "no store"):
            return [damaged]
        with Store.open(store) as opened:
            records = opened.records()
        done = {record.trial for record in records if record.state not in ("running", "interrupted")}
        new = [record for record in records if f"{record.trial}.{record.attempt}" not in there]
        states = Counter(record.state for record in new if not 0 < record.start_ns < begun_ns)  # else it was collected
        self.counts += Counter({f"trials {state}, {platform}, run to the end": n for state, n in states.items()})
        missing = [] if len(done) == TRIALS else [f"{len(done)} trials at the end, of {TRIALS}"]
        return missing + ([f"{states['failed']} trials failed"] if states["failed"] else [])

    def close(self) -> None:
        for one in (self.board, self.fleet):
            if one is not None:
                one.close()

    def as_json(self) -> dict[str, Any]:
        return {"date": time.strftime("%Y-%m-%d"), "kills": sum(self.kills.values()), "of": dict(self.kills),
                "counts": dict(self.counts + self.board.counts), "wrong": self.wrong}  # fmt: skip


def _sealed(store: Path) -> set[str]:
    return {path.name for path in (store / "trials").glob("[!.]*")}


def _trials(store: Path) -> set[str]:
    """Every trial that there is or was: sealed, or begun and cut off."""
    return {path.name.lstrip(".") for folder in ("trials", "spool") for path in (store / folder).glob("*")}


def _damaged(store: Path) -> str:
    """A store that cannot be read, or two finished attempts at one trial."""
    from tare.base.errors import TareError
    from tare.records.store import Store

    if not (store / "study.yaml").exists() and not any(store.glob("*")):
        return ""
    try:
        with Store.open(store) as opened:
            finished = Counter(record.trial for record in opened.records() if record.state == "ok")
            return "; ".join([*opened.verify(), *(f"{trial} twice" for trial, n in finished.items() if n > 1)])
    except TareError as error:
        return "" if "no store" in str(error) or "not a store" in str(error) else str(error)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no round after these")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--platforms", default="bare,runc,docker,fleet")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    begun_s = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):  # nothing of it outlives it, also where a shell began it with `&`
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tare-chaos-", dir="/var/tmp") as folder:
        chaos = Chaos(Path(folder), asked.seed, asked.platforms.split(","))
        number = 0
        try:
            while sum(chaos.kills.values()) < asked.kills and time.monotonic() - begun_s < asked.seconds:
                chaos.round(number)
                number += 1
                if asked.json:
                    result = {"seed": asked.seed, "seconds": round(time.monotonic() - begun_s), **chaos.as_json()}
                    asked.json.write_text(json.dumps(result, indent=1))
        finally:
            chaos.close()
    sys.stdout.write(json.dumps({"seed": asked.seed, **chaos.as_json()}, indent=1) + "\n")
    return bool(chaos.wrong)


if __name__ == "__main__":
    sys.exit(main())
