"""A recorder on the real machine, polled as the sampler does while a job runs at a place."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tare.base.host import Exit, Host, Job, LocalHost, Site, WatchingHost
from tare.parts.protocols import Platform, Recorder

ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


@contextmanager
def opened(platform: Platform, tmp_path: Path) -> Iterator[Host]:
    place = platform.open(LocalHost(), Site(name=f"tare-test-{secrets.token_hex(4)}", scratch=tmp_path))
    try:
        yield place
    finally:
        place.close()


def recorded(recorder: Recorder, place: Host, folder: Path, argv: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Run a job with the recorder on; its tables, whole."""
    folder.mkdir()
    host = WatchingHost()
    feed = recorder.record(host, [place.scope()], folder)
    try:
        _run_polled(place, Job(argv, ENV), feed)
    finally:
        feed.close()
        host.close()
    found: dict[str, list[Any]] = {}
    for table in recorder.tables(folder):
        found.setdefault(table.name, []).append(table.columns)
    return {
        name: {key: np.concatenate([np.asarray(one[key]) for one in many]) for key in many[0]}
        for name, many in found.items()
    }


def _run_polled(place: Host, job: Job, feed: Any) -> None:
    ended: list[Exit] = []
    runner = threading.Thread(target=lambda: ended.append(place.spawn(job).wait(120)))
    runner.start()
    while runner.is_alive():
        feed.poll()
        runner.join(0.1)
    assert ended, "the job could not be started"
    assert ended[0].code == 0, ended[0].err
