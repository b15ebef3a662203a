"""Run by test_restore.py in a process of its own, which is killed at each step: `driver_knobs.py VERB ROOT STATE`.

ROOT looks like a device: its knobs are /sys/knobs/{a,b,c}. STATE is the state folder.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path, PurePath

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from knobs import DEVICE, FileKnob, make_findable

from tare.errors import TareError
from tare.host import LocalHost
from tare.trial.device import DeviceLock
from tare.trial.journal import Journal
from tare.trial.preparation import hold_controls
from tare.trial.restoration import restore

VALUES = {"a": "7", "b": "8", "c": "1"}


class Device(LocalHost):
    """A file takes a value whole, as the kernel's do: plain files would be empty between the opening and the write."""

    def write(self, path: PurePath | str, text: str) -> None:
        descriptor = os.open(self._at(path), os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def put_back(host: LocalHost, journal: Journal) -> None:
    report = restore(host, journal)
    if not report.clean:
        raise TareError("\n".join(report.sentences()))


def hold(host: LocalHost, journal: Journal) -> None:
    """As a run does it: whatever a dead one left is put back first."""
    put_back(host, journal)
    with ExitStack() as stack:
        hold_controls(stack, host, [FileKnob(file=name, value=value) for name, value in VALUES.items()], [], journal)
        stands = {name: host.read(f"/sys/knobs/{name}").strip() for name in VALUES}
        assert stands == VALUES, stands


def hold_and_fill(host: LocalHost, journal: Journal) -> None:
    """The disk with the journal is full when the knobs are to be put back."""
    with ExitStack() as stack:
        hold_controls(stack, host, [FileKnob(file=name, value=value) for name, value in VALUES.items()], [], journal)
        with (journal.folder / "ballast").open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"x" * 4096)
            except OSError:
                pass
    assert journal.pending() == [], "the lines that retire the knobs did not fit"


def main() -> int:
    verb, root, state = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    make_findable(pytest.MonkeyPatch())
    verbs = {"hold": hold, "restore": put_back, "fill": hold_and_fill}
    try:
        with DeviceLock(state, DEVICE, f"driver {verb}"):
            verbs[verb](Device(root=root), Journal(state / "devices" / DEVICE))
    except TareError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code
    return 0


sys.exit(main())
