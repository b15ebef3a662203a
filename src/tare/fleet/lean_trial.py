"""One trial on a device without tare: the engine runs here, the job, the sampler and the lock are there."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tare.base.errors import BusyError, LineLost, NotPermittedError, TareError
from tare.base.files import state_dir
from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle
from tare.fleet.inventory import Device
from tare.fleet.lean_host import BEATS_UNHEARD, LeanHost, opened
from tare.fleet.lean_sampling import READABLE, LeanSampler
from tare.fleet.local import Sampled, Watcher, put_back_all
from tare.fleet.ssh import Unreachable
from tare.parts.protocols import Part, Probe
from tare.plan.check import ObstacleCheck, check
from tare.plan.model import Cell
from tare.studies.model import Study
from tare.trial.device import device_id, private_folder
from tare.trial.undo.journal import Journal
from tare_inside.variables import may_pass, users_own

LEAST_FREE_BYTES = 32 << 20
_ENDS_WITHIN_S = 30.0  # an agent whose line broke: to notice it, and to clean up
_NEEDS_TARE = "needs tare on the device ({why}): put it there, and name its Python as `tare`."
# By kind: what a lean device can be asked for, and why nothing else.
_LEAN: Mapping[str, tuple[Collection[str], str]] = {
    "platform": (("bare",), "a lean device runs `bare` only"),
    "control": ((), "nothing would restore it if the connection broke"),
    "probe": (READABLE, "it is more than files to read"),
}


@contextmanager
def driven(fields: Mapping[str, Any], patience_s: float) -> Iterator[LeanHost]:
    """The device at the other end of a line; while it lasts, jobs are made with the device's own variables."""
    device = Device.model_validate(dict(fields))
    with opened(device, patience_s) as line, _jobs_get(line.said["environ"], data=line.said["data"]):
        yield LeanHost(line)


@contextmanager
def _jobs_get(there: Mapping[str, str], data: str) -> Iterator[None]:
    """This process makes jobs for another machine: what they get of the user's variables is that machine's user's.

    What no job gets stays ours, and so does where we keep our state: HOME is the device's meanwhile.
    """
    ours = dict(os.environ)
    own = {name: value for name, value in ours.items() if not users_own(name)} | {"TARE_STATE": str(state_dir())}
    theirs = {name: value for name, value in there.items() if may_pass(name)}
    os.environ.clear()
    os.environ.update({**theirs, **own, "TARE_DATA": data})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(ours)


class LeanObstacleCheck(ObstacleCheck):
    """Asks parts what keeps them from working on a lean device; for what only tare there can do, it need not."""

    def __init__(self, host: LeanHost) -> None:
        super().__init__(host)
        self._there = host

    def look(self, kind: str, part: Part) -> tuple[Ruling, ...]:
        if why := _why_not_lean(kind, part.part_name()):
            return (obstacle("needs.full-device", why),)
        found = super().look(kind, part)
        if self._there.gone:  # or a broken line would pass for all that the device lacks
            raise Unreachable(self._there.name, "the line to the device broke while it was asked what it lacks.")
        return found


def obstacles_there(study: Study, cells: Sequence[Cell], host: LeanHost) -> Sequence[Ruling]:
    """Why the study cannot be driven on this device."""
    return _not_lean(cells) or check(study, cells, host, ignore_managers=True).blocked


def _not_lean(cells: Sequence[Cell]) -> list[Ruling]:
    """What only tare on the device itself can do."""
    named = {
        "platform": {part.part_name() for cell in cells for tenant in cell.everyone() for part in tenant.platforms},
        "control": {part.part_name() for cell in cells for part in cell.controls},
        "probe": {part.part_name() for cell in cells for part in cell.probes},
    }
    wanted = [(kind, name) for kind, names in named.items() for name in sorted(names)]
    reported = [
        Ruling("needs.full-device", "obstacle", f"{kind} {name}", f"{kind} {name} {why}")
        for kind, name in wanted
        if (why := _why_not_lean(kind, name))
    ]
    if any(len(cell.everyone()) > 1 for cell in cells):
        sentence = f"tenants {_NEEDS_TARE.format(why='a lean device runs one workload at a time')}"
        reported.append(Ruling("needs.full-device", "obstacle", "tenants", sentence))
    return reported


def _why_not_lean(kind: str, name: str) -> str:
    """Why only tare on the device itself can do this; empty where the device has to be asked."""
    can, why = _LEAN.get(kind, ((name,), ""))
    return "" if name in can else _NEEDS_TARE.format(why=why)


def no_room_there(host: LeanHost) -> list[Ruling]:
    """That the device is full, which is no fault of the study's."""
    free = int(host.line.said["free_bytes"])
    if free >= LEAST_FREE_BYTES:
        return []
    needed = f"{LEAST_FREE_BYTES >> 20} MiB needed."
    return [obstacle("fleet.full", f"no space left on this device: {free >> 20} MiB free in its memory, {needed}")]


@contextmanager
def owned_there(host: Host, watcher: Watcher, run: str) -> Iterator[tuple[Journal, Path]]:
    """The device, ours alone by its own lock, which the agent holds; what an earlier line left is swept first."""
    assert isinstance(host, LeanHost)
    own = state_dir() / "fleet" / "lean" / host.name
    device = device_id(host, own)
    _take(host, device, run)
    journal, scratch = Journal(private_folder(own / device), run), state_dir() / "scratch"
    try:
        put_back_all(host, journal, scratch, watcher)
        yield journal, scratch
        put_back_all(host, journal, scratch, watcher)
    except TareError as error:
        if host.gone and not isinstance(
            error, LineLost
        ):  # what could not be swept for want of a line waits for the next
            raise LineLost(f"{host.name}: the line to the device broke during the trial.") from error
        raise


def _take(host: LeanHost, device: str, run: str) -> None:
    within_s = BEATS_UNHEARD * host.line.alive_s + _ENDS_WITHIN_S
    try:
        with host.answering("be locked") as link:
            number = link.begin("lock", device=device, run=f"{os.uname().nodename}: {run}", within_s=within_s)
            requested = link.answer(number, within_s + _ENDS_WITHIN_S)
    except OSError as error:
        raise TareError(f"{host.name}: its lock cannot be taken: {error.strerror}.") from error
    if (why := requested.header.get("refused")) is not None:
        raise NotPermittedError(f"{host.name}: {why}")
    if (holder := requested.header.get("busy")) is not None:
        who = f"pid {holder.get('pid')} there, run {holder.get('run')!r}" if holder else "it has not named itself"
        raise BusyError(f"{host.name}: another run owns this device: {who}.")


def sampler_for(host: LeanHost) -> Sampled:
    """What samples on this device, made as the engine makes its own."""

    def make(probes: Sequence[Probe], spool: Path, period_s: float) -> LeanSampler:
        return LeanSampler(host, probes, spool, period_s)

    return make
