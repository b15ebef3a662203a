"""`tare watch`: how a run stands while its store is written."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.base.errors import NoSuchInput, ObstacleError, StoreError, TareError
from tare.base.installed import pip_install
from tare.cli.scaffold import STORE, Verb, say, width

if TYPE_CHECKING:
    from tare.base.host import Host
    from tare.report.live.snapshot import Watched


_SENSORS_S = 5.0
_PLACES = ("setting or place", "settings or places")
_NO_SETTING = "no setting, or not readable"
_BESIDE_LINES = 18  # of a screen, for what is not a device of a fleet


@click.command("watch", cls=Verb)
@click.argument("stores", nargs=-1, required=True, type=STORE)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Where to listen; else any free port.")
@click.option("--tui", is_flag=True, help="Show it in this terminal instead of a browser.")
@click.option("--once", is_flag=True, help="Print one look and end; with --tui.")
def command(stores: tuple[Path, ...], port: int, tui: bool, once: bool) -> None:
    """Show STORES while they are written: progress, the running trial, verdicts, the device.

    The dashboard listens on this machine alone and prints its address with a token. Ending it, or a reload, does not
    disturb the run. Several stores are shown side by side. From elsewhere: ssh -L PORT:127.0.0.1:PORT.
    """
    from tare.records.schema import is_store
    from tare.report.live.snapshot import Watched

    for store in stores:
        if not is_store(store):
            refused = StoreError if store.exists() else NoSuchInput
            if store.is_file():
                raise refused(f"{store}: this is a file, and a store is a folder that `tare run` made.")
            raise refused(f"{store}: there is no store here; `tare run STUDY -o {store}` makes one.")
    device = _Machine()
    watched = [Watched(store, device.look) for store in stores]
    if tui or once:
        _watch_in_terminal(watched, once)
    else:
        _watch_in_browser(watched, port)


def _watch_in_terminal(watched: Sequence[Watched], once: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from tare.report.live.screen import screen

    console = Console(width=width(), highlight=False)
    if once or not console.is_terminal:
        console.print(screen([each.look() for each in watched], width()))
        return
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            start_s = time.monotonic()
            room = max(5, (console.height - _BESIDE_LINES * len(watched)) // len(watched))
            live.update(screen([each.look() for each in watched], console.width, room), refresh=True)
            time.sleep(max(1.0, 5 * (time.monotonic() - start_s)))


def _watch_in_browser(watched: Sequence[Watched], port: int) -> None:
    try:
        import uvicorn

        from tare.report.live.app import MOST_WAITING, Door, make_app
    except ImportError:
        raise ObstacleError(
            f"the dashboard needs starlette and uvicorn: `{pip_install('serve')}`; `--tui` does without."
        ) from None
    from tare.report.live.app import new_token

    token = new_token()
    with _listening(port) as door:
        say(f"watching on http://127.0.0.1:{door.getsockname()[1]}/?token={token}")
        say("Ctrl-C ends the dashboard, not the run.")
        config = uvicorn.Config(
            make_app(watched, token), http=Door, backlog=MOST_WAITING, log_level="error", access_log=False,
            server_header=False, timeout_graceful_shutdown=1, lifespan="off",
        )  # fmt: skip
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[door])


def _listening(port: int) -> socket.socket:
    """A socket on loopback; a port that is taken is said, and another one used."""
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind(("127.0.0.1", port))
    except OSError as error:
        say(f"port {port} cannot be had ({error.strerror}); another one is used.")
        door.bind(("127.0.0.1", 0))
    door.listen(16)  # before its address is printed: whoever reads it may knock at once
    return door


class _Machine:
    """This machine's state: clocks and temperatures that the kernel reports, what is changed on it, and by whom."""

    def __init__(self) -> None:
        self._sensors: dict[str, Any] = {}
        self._next_s = 0.0

    def look(self) -> Mapping[str, Any]:
        """Sensors are read rarely: asking a core for its clock may wake it."""
        from tare.base.host import LocalHost

        if time.monotonic() >= self._next_s:
            self._sensors = sensors(LocalHost())
            self._next_s = time.monotonic() + _SENSORS_S
        return {**self._sensors, **_changes()}


def sensors(host: Host) -> dict[str, Any]:
    """Clocks and temperatures as the kernel reports them now, in words; what it does not report is absent."""
    import numpy as np

    from tare.base.host import Scope
    from tare.parts.find import find
    from tare.parts.protocols import Probe
    from tare.report.live.running import sensor_texts

    found: dict[str, Any] = {}
    for name in ("frequency", "temperature"):
        with suppress(TareError, OSError, ValueError):
            probe = find("probes", name)()
            assert isinstance(probe, Probe)
            if not probe.obstacles(host):
                with closing(probe.open(host, Scope())) as feed:
                    found |= {each.channel: (np.array([each.t_ns]), np.array([each.value])) for each in feed.poll()}
    return dict(sensor_texts(found))


def _changes() -> dict[str, Any]:
    """What is changed on this device now, and whether it will be restored; nothing where the journal cannot be read."""
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.base.processes import Owner
    from tare.base.text import count_text, duration_text
    from tare.trial.device import device_id
    from tare.trial.undo.journal import Journal
    from tare.trial.undo.restoration import status

    try:
        host = LocalHost()
        rows = status(host, Journal(state_dir() / "devices" / device_id(host)))
    except (TareError, OSError):
        return {}
    owners = [Owner.parse(row.owner) for row in rows]
    left = sum(owner is None or not owner.is_alive() for owner in owners)
    restored = "as it was found: nothing is changed"
    if left:
        restored = f"{count_text(left, *_PLACES)} NOT restored: run `tare device restore`"
    elif rows:
        restored = f"{count_text(len(rows), *_PLACES)} changed by a run that is at work, and restored at its end"
    changed = [
        {
            "knob": row.knob, "baseline": row.baseline if row.baseline is not None else _NO_SETTING,
            "now": row.now if row.now is not None else _NO_SETTING,
            "owner": f"pid {row.owner.partition(':')[0]}", "age": duration_text(row.age_s),
        }
        for row in rows
        if row.wanted is not None or row.baseline is not None  # else a container or folder of the trial that runs
    ]  # fmt: skip
    return {"restored": restored, "changed": changed}
