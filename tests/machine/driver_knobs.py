"""Run by test_restore.py under strace, which kills it at each step: `driver_knobs.py VERB ROOT STATE [ARGUMENT...]`.

ROOT looks like a device: its knobs are /sys/knobs/{a,b,c}. STATE is the state folder. The verb `sweep` does a whole
sweep in forked children, so that Python starts once: strace kills each process at its call number `DEATH`, and a child
that is to die at its Nth call makes `DEATH - N` idle ones first.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path, PurePath

sys.path.insert(0, str(Path(__file__).parent.parent))

from knobs import DEVICE, FileKnob, make_findable_for_good
from tare.base.errors import TareError
from tare.base.host import LocalHost
from tare.trial.device import DeviceLock
from tare.trial.undo.journal import Journal
from tare.trial.undo.knob import hold_controls
from tare.trial.undo.restoration import restore

VALUES = {"a": "7", "b": "8", "c": "1"}
DEATH = 40


class Device(LocalHost):
    """A file takes a value whole, as the kernel's do: plain files would be empty between the opening and the write."""

    def write(self, path: PurePath | str, text: str) -> None:
        descriptor = os.open(self.file(path), os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def put_back(host: LocalHost, journal: Journal) -> None:
    report = restore(host, journal)
    if not report.clean:
        raise TareError("\n".join(report.sentences()))


def hold(host: LocalHost, journal: Journal, body: Callable[[], object] = lambda: None) -> None:
    """As a run does it: whatever a dead one left is put back first."""
    put_back(host, journal)
    with ExitStack() as stack:
        hold_controls(stack, host, [FileKnob(file=name, value=value) for name, value in VALUES.items()], [], journal)
        stands = {name: host.read(f"/sys/knobs/{name}").strip() for name in VALUES}
        assert stands == VALUES, stands
        body()


def fill(host: LocalHost, journal: Journal) -> None:
    """The disk with the journal is full when the knobs are to be put back."""
    journal.run = "long" * 400  # so that the lines to come do not fit into the page that is there already

    def eat_the_room() -> None:
        with (journal.folder / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(b"x" * 4096):
                pass

    hold(host, journal, eat_the_room)
    assert journal.pending() == [], "the lines that retire the knobs did not fit"


VERBS = {"hold": hold, "restore": put_back, "fill": fill}


def do(verb: str, root: Path, state: Path) -> int:
    try:
        with DeviceLock(state, DEVICE, f"driver {verb}"):
            VERBS[verb](Device(root=root), Journal(state / "devices" / DEVICE))
    except TareError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code
    return 0


class Sweep:
    """Every way to die, one after another; `wrong` says where a knob was not as it had been found."""

    def __init__(self, root: Path, state: Path, fault: str) -> None:
        self.root, self.state = root, state
        self.idle = {"fsync": self._idle_fsync, "knob": self._idle_write, "line": self._idle_write}[fault]
        self.found = self.stand()
        self.deaths = 0
        self.wrong: list[str] = []

    def once(self, first: str, last: str) -> None:
        """Die at each step of `first`; `last` must put it right."""
        for number in count(1):
            died = self.child(first, number)
            self.check(f"{first} at {number}, then {last}", last)
            if not died:
                return

    def twice(self, first: str, second: str, last: str) -> None:
        """Die at each step of `first`, and then at each step of `second`; `last` must put it right."""
        for number in count(1):
            for again in count(1):
                died = self.child(first, number)
                died_again = self.child(second, again)
                self.check(f"{first} at {number}, {second} at {again}, then {last}", last)
                if not died_again:
                    break
            if not died:
                return

    def check(self, what: str, last: str) -> None:
        if self.child(last, None) or self.stand() != self.found:
            self.wrong.append(f"{what}: {self.stand()}")

    def stand(self) -> dict[str, str]:
        return {name: (self.root / "sys/knobs" / name).read_bytes().hex() for name in VALUES}

    def child(self, verb: str, dies_at: int | None) -> bool:
        """Do it in a process of its own; True if that was killed on the way."""
        pid = os.fork()
        if pid == 0:
            code = 99
            with suppress(BaseException):
                try:
                    self.idle(0 if dies_at is None else DEATH - dies_at)
                    code = do(verb, self.root, self.state)
                except BaseException:
                    traceback.print_exc()
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.deaths += code == -9
        if code not in (0, -9):
            self.wrong.append(f"{verb} ended with {code}")
        return code == -9

    def _idle_fsync(self, times: int) -> None:
        descriptor = os.memfd_create("idle")
        for _ in range(times):
            os.fsync(descriptor)

    def _idle_write(self, times: int) -> None:
        descriptor = os.open(self.root / "idle", os.O_WRONLY)  # strace counts writes to this file too
        for _ in range(times):
            os.write(descriptor, b"x")


def main() -> int:
    verb, root, state, *more = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:]
    make_findable_for_good()
    if verb != "sweep":
        return do(verb, root, state)
    fault, *verbs = more
    sweep = Sweep(root, state, fault)
    {2: sweep.once, 3: sweep.twice}[len(verbs)](*verbs)
    sys.stdout.write(json.dumps({"deaths": sweep.deaths, "wrong": sweep.wrong}) + "\n")
    return 0


sys.exit(main())
