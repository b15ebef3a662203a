"""A program: holds an emulated medium as a trial does, and dies (SIGKILL) before its N-th command, or once it stands.

python driver_storage.py STATE DATA N      N = 0: it holds the medium and waits to be killed
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tare.base import processes
from tare.base.host import Completed, LocalHost, Site
from tare.parts.controls.storage import Storage
from tare.parts.platforms.bare import Bare
from tare.parts.protocols import TenantPlace
from tare.trial.device import device_id
from tare.trial.undo.journal import Journal
from tare.trial.undo.knob import hold_controls, settle_controls

MAKING = ("mkdir", "fallocate", "mkfs.ext4", "losetup", "mount", "umount", "cp", "touch", "sync", "rm")
THROUGH = 42  # its exit code when no command was left to die before


class Mortal(LocalHost):
    """Ends this process before its n-th command that changes something."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self._left = n

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        if argv[0] in MAKING and "--list" not in argv:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().run(argv, limit_s=limit_s, stdin=stdin)


def main(state: Path, data: Path, n: int) -> None:
    os.environ["TARE_STATE"] = str(state)
    host, control = Mortal(n), Storage(emulate={"read_bps": "200 MB/s"})  # type: ignore[arg-type]
    journal = Journal(state / "devices" / device_id(host))
    with ExitStack() as stack:
        hold_controls(stack, host, [control], [data], journal)
        if n == 0:
            _stand(host, control, state, data, journal)


def _stand(host: LocalHost, control: Storage, state: Path, data: Path, journal: Journal) -> None:
    """A throttled group on it as well, and then to be killed from outside."""
    name = f"tare-st-{os.getpid()}"
    journal.note_site("bare", name)
    processes.lease_name(name)
    (state / "scratch" / name).mkdir(parents=True)
    place = Bare().open(host, Site(name, state / "scratch" / name, (data,)))
    settle_controls(host, [control], [TenantPlace(place, state, (data,))])
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    sys.exit(THROUGH)
