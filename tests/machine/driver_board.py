"""Run on a pretended board (pretended_board.py), mostly under strace: `driver_board.py FOLDER VERB [ARGUMENT...]`.

`tare WORDS...` is one command. `sweep FAULT LAST FIRST EVERY` runs a study again and again in forked children, so that
Python starts once. With the fault `step` a child kills itself right before its Nth fsync or knob write, as quickly as
that can be done. With the others strace does it, at the call number `DEATH`: a child that is to die at its Nth call
makes `DEATH - N` idle ones first. A write to a knob is a `writev`, which nothing else here makes.

`serve` begins a command for each line of its input, in a child, so that Python and tare are loaded once: `Served`.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path, PurePath
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from pretended_board import DEATH, PretendedBoard

from tare.base import host as hosts
from tare.base.host import LocalHost
from tare.base.units import core_text, cores
from tare.trial.sampler_report import SamplerReport
from trees.files import CPUS
from trees.kernel import Kernel

VM = "/proc/sys/vm"
PAIRS = (("dirty_ratio", "dirty_bytes"), ("dirty_background_ratio", "dirty_background_bytes"))
PARTNERS = {f"{VM}/{one}": f"{VM}/{other}" for pair in PAIRS for one, other in (pair, pair[::-1])}


class Fate:
    """Ends this process before its Nth step, the way kill -9 does."""

    def __init__(self) -> None:
        self.left = 0
        self._fsync = os.fsync
        os.fsync = self.sync

    def sync(self, descriptor: Any) -> None:
        self.step()
        self._fsync(descriptor)

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


FATE = Fate()


class Whole(LocalHost):
    """A file takes a value whole, as the kernel's do: plain files would be empty between the opening and the write."""

    def write(self, path: PurePath | str, text: str) -> None:
        FATE.step()
        self._put(path, text, os.writev)

    def put_quietly(self, path: PurePath | str, text: str) -> None:
        """What the kernel itself changes along with a knob, at the same moment."""
        self._put(path, text, lambda descriptor, data: os.pwritev(descriptor, data, 0))

    def _put(self, path: PurePath | str, text: str, write: Callable[[int, list[bytes]], int]) -> None:
        descriptor = os.open(self.file(path), os.O_WRONLY)
        try:
            size = write(descriptor, [text.encode()])
            with suppress(OSError):  # the kernel's own files have no length
                os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)


class Board(Kernel, Whole):
    """The kernel of the board; its cpusets are this machine's own, and lose nothing."""

    def __init__(self, **_: Any) -> None:
        super().__init__(Path("/"))

    def write(self, path: PurePath | str, text: str) -> None:
        before = self.read(path)
        super().write(path, text)
        if str(path) in PARTNERS and text.strip() not in (before.strip(), "0"):
            self.put_quietly(PARTNERS[str(path)], "0\n")  # the same limit in its other form

    def _switched(self) -> None:
        on = {core for core in cores(self.read(f"{CPUS}/present")) if self._is_on(core)}
        self.put_quietly(f"{CPUS}/online", core_text(on) + "\n")


class Blind:
    """In place of the sampler's process, which has half a second to start and nothing to do with knobs."""

    def __init__(self, *_: object) -> None: ...
    def __enter__(self) -> Blind:
        return self

    def __exit__(self, *_: object) -> None: ...
    def begin(self, *_: object) -> None: ...
    def end(self) -> SamplerReport:
        return SamplerReport(ticks=1, missed=0, late_p99_s=0.0, cpu_s=0.0, seconds=0.0, lost=[], core=None)


def tare(*words: str) -> int:
    """What the command line does with these words."""
    from tare.cli import main

    sys.argv = ["tare", *words]
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    return 0


def run(folder: Path, store: Path) -> int:
    """`tare run` without its last page, the report: no knob is turned any more then."""
    from tare.api.running import load_study, run_into

    study = folder / "study.yaml"
    return 0 if run_into(load_study(study, False), study.read_text(), store).left == 0 else 1


class Sweep:
    """Every way to die, one after another; `wrong` says where the board was not as it had been found."""

    def __init__(self, folder: Path, fault: str) -> None:
        self.board = PretendedBoard.standing(folder)
        self.folder, self.fault = folder, fault
        self.deaths = self.left = 0
        self.wrong: list[str] = []

    def runs(self, last: str, first: int, every: int) -> None:
        """Die at every so many-th step of a run, from the first on.

        Once that is past the first trial, a copy of what it has left is gone on with: to run that trial again for
        each step of the second would take most of the time.
        """
        for number in count(first, every):
            store = self.folder / f"first-{number}"
            if not self.dies(store, number, last):
                return
            if last == "restore" and list((store / "trials").glob("[!.]*")):
                break
        begun = self.folder / "begun"
        shutil.move(store, begun)
        for number in count(first, every):
            store = shutil.copytree(begun, self.folder / f"second-{number}")
            if not self.dies(store, number, last):
                return

    def dies(self, store: Path, number: int, last: str) -> bool:
        """Whether a run into this store dies at that step; `last` must put it right: a restore, or the run again."""
        what = f"{store.name}, then {last}"
        died = self.child(lambda: run(self.folder, store), number)
        if last == "again":
            self.expect_well(what, lambda: run(self.folder, store))
            self.check_store(what, store)
        else:
            self.expect_well(what, lambda: tare("device", "restore"))
        self.check(what)
        return died

    def restores(self, died_at: int, first: int, every: int) -> None:
        """Die at a step of a run and then at the steps of the restore after it; the next one must finish it."""
        self.child(lambda: run(self.folder, self.folder / f"store-{died_at}"), died_at)
        left, kept = self.board.stand(), self._state()
        self.left = len(self.board.moved())
        for number in count(first, every):
            self.board.lay_back(left)
            self._lay_back_state(kept)
            died = self.child(lambda: tare("device", "restore"), number)
            what = f"run at {died_at}, restore at {number}"
            self.expect_well(what, lambda: tare("device", "restore"))
            self.check(what)
            if not died:
                return

    def expect_well(self, what: str, do: Callable[[], int]) -> None:
        if self.child(do, None):
            self.wrong.append(f"{what}: the last one was killed too")

    def check(self, what: str) -> None:
        """Byte for byte, and `tare device status` agrees."""
        if moved := self.board.moved():
            self.wrong.append(f"{what}: {moved}")
            self.board.lay_back(self.board.found)
        said = self.folder / "status.json"
        self.child(lambda: tare("device", "status", "--json"), None, said)
        status = json.loads(said.read_text() or "{}")
        if status.get("changed") != 0 or status.get("knobs") != []:
            self.wrong.append(f"{what}: status says {status}")

    def check_store(self, what: str, store: Path) -> None:
        """Each trial is done once, and what was cut off is kept as such."""
        from tare.records.store import Store

        with Store.open(store) as opened:
            done = [record.trial for record in opened.records() if record.state == "ok"]
            wrong = [*opened.verify(), *opened.problems]
        if len(done) != 2 or len(set(done)) != 2 or wrong:
            self.wrong.append(f"{what}: the store has {done}, {wrong}")

    def child(self, do: Callable[[], int], dies_at: int | None, out: Path | None = None) -> bool:
        """Do it in a process of its own; True if that was killed on the way."""
        pid = os.fork()
        if pid == 0:
            code = 99
            with suppress(BaseException):
                try:
                    self._quieten(out or Path(os.devnull))
                    if dies_at is not None:
                        self._fated(dies_at)
                    code = do()
                except BaseException:
                    traceback.print_exc()
            sys.stdout.flush()
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.deaths += code == -9
        if code not in (0, -9):
            said = (self.folder / "said.txt").read_text()
            self.wrong.append(f"a child that was to die at {dies_at} ended with {code}: {said}")
        return code == -9

    def _quieten(self, out: Path) -> None:
        for path, number in ((out, 1), (self.folder / "said.txt", 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)

    def _fated(self, dies_at: int) -> None:
        if self.fault == "step":
            FATE.left = dies_at
            return
        descriptor = os.memfd_create("idle")
        call = {"fsync": os.fsync, "fdatasync": os.fdatasync, "knob": lambda it: os.writev(it, [b"x"])}[self.fault]
        for _ in range(DEATH - dies_at):
            call(descriptor)

    def _state(self) -> dict[Path, bytes]:
        folder = Path(os.environ["TARE_STATE"])
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def _lay_back_state(self, kept: dict[Path, bytes]) -> None:
        for path in self._state():
            if path not in kept:
                path.unlink()
        for path, content in kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def sweep(folder: Path, fault: str, last: str, first: str, every: str) -> int:
    from tare.cli import device
    from tare.trial import engine

    engine.Sampler = Blind  # type: ignore[misc, assignment]
    engine._fingerprint = lambda *_: {}  # type: ignore[assignment]
    device.stop_left_overs = list  # it asks every engine, and none was started here
    it = Sweep(folder, fault)
    it.child(lambda: run(folder, folder / "rehearsal"), None)
    it.check("a run that nobody kills")
    if last.isdecimal():
        it.restores(int(last), int(first), int(every))
    else:
        it.runs(last, int(first), int(every))
    sys.stdout.write(json.dumps({"deaths": it.deaths, "left": it.left, "wrong": it.wrong}) + "\n")
    return 0


def serve(folder: Path) -> int:
    """`{"words": [...], "env": {...}, "log": FILE}` begins a command: `begun PID`, and `ended PID CODE` in its time."""
    from undisturbed import ForkedSampler, relax
    from without_report import leave_out_the_report

    from tare.fleet import local

    relax()
    leave_out_the_report()
    local.run_study.__kwdefaults__["sampler"] = ForkedSampler
    os.set_blocking(0, False)
    waiting, open_still = b"", True
    while open_still:
        readable, _, _ = select.select([0], [], [], 0.02)
        read = os.read(0, 1 << 16) if readable else None
        open_still = read != b""
        *lines, waiting = (waiting + (read or b"")).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if (pid := os.fork()) == 0:
                return _served(folder, request)
            os.write(1, f"begun {pid}\n".encode())
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                os.write(1, f"ended {ended[0]} {os.waitstatus_to_exitcode(ended[1])}\n".encode())
    return 0


def _served(folder: Path, request: dict[str, Any]) -> int:
    """In the child: one command, as a shell would begin it."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, number)
    os.closerange(3, 64)
    os.setsid()
    os.chdir(folder)
    os.environ |= request["env"]
    return tare(*request["words"])


def warm_up() -> None:
    """Import what the children would otherwise import one after another."""
    for name in (
        "cli.device",
        "api.running",
        "fleet.local",
        "drivers.power.everything",
        "plan.check",
        "report.progress",
    ):
        importlib.import_module(f"tare.{name}")


def main() -> int:
    folder, verb, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if not Path("/sys/kernel/debug/emc_override").exists():
        sys.exit("this is not the pretended board: nothing was touched.")
    warm_up()
    hosts.LocalHost = Board  # type: ignore[misc]
    if verb == "serve":
        return serve(folder)
    return tare(*words) if verb == "tare" else sweep(folder, *words)


if __name__ == "__main__":
    sys.exit(main())
