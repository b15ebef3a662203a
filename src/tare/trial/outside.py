"""When a job began and ended, as the device saw it: nothing that runs inside can move either."""

from __future__ import annotations

import os
import select
import stat
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tare.base.host import Clock, Exit
from tare_inside.launch import BEGUN


class Outside:
    """Made before a job is started, closed when it has ended.

    The launcher writes a byte to a pipe just before it starts the command: what an engine takes to bring a job in is
    then no part of the run. A byte that comes after it changes nothing. Where there is no pipe, the run begins when the
    platform was asked for it.
    """

    def __init__(self, workdir: Path, clock: Clock, *, shared: bool) -> None:
        self._clock = clock
        self._pipe = _made(workdir) if shared else None
        self._began_ns: int | None = None
        self._over, self._tell = os.pipe()
        self._listening: threading.Thread | None = None
        if self._pipe is not None:
            self._listening = threading.Thread(target=self._listen, args=(self._pipe,), daemon=True)
            self._listening.start()
        self._spawned_ns = clock.now_ns()

    def _listen(self, pipe: int) -> None:
        ready, _, _ = select.select([pipe, self._over], [], [])
        if pipe in ready:
            self._began_ns = self._clock.now_ns()

    def close(self, ended: Exit | None) -> dict[str, Any] | None:
        """What the record keeps, with how long it took to bring the job in; None where it did not come to an end."""
        end_ns = self._clock.now_ns()
        os.close(self._tell)
        if self._listening is not None:
            self._listening.join()
        for descriptor in filter(None, (self._pipe, self._over)):
            os.close(descriptor)
        if ended is None:
            return None
        launch_s = 0.0 if self._began_ns is None else (self._began_ns - self._spawned_ns) / 1e9
        return {"begin_ns": self._spawned_ns, "end_ns": end_ns, "seconds": ended.seconds, "launch_s": launch_s}


def begun_earlier(seen: Mapping[str, Any], start_ns: int) -> dict[str, Any]:
    """With the launcher's own word for the begin, where that is earlier: on a busy device the byte is seen late."""
    return {**seen, "launch_s": max(0.0, min(seen["launch_s"], (start_ns - seen["begin_ns"]) / 1e9))}


def _made(workdir: Path) -> int | None:
    """The reading end of the pipe; None where none can be made there."""
    path = workdir / BEGUN
    with suppress(OSError):
        os.mkfifo(path)
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)  # noqa: PTH101  (of whoever runs the job)
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return None
