"""The device's end of a fleet: one trial, run here as `tare run` would, into a store of this device's own.

The controller may be gone by the time it ends; the records wait here until someone collects them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tare import __version__
from tare.base.errors import BusyError, LineLost, NotPermittedError, StoreError, TareError
from tare.base.files import free_bytes, make_folders, replace_file, state_dir
from tare.base.host import Host, LocalHost
from tare.base.rulings import Ruling, obstacle
from tare.fleet.inventory import Device, planned_on
from tare.fleet.lean_host import LeanHost
from tare.fleet.lean_line import BEATS_UNHEARD, opened
from tare.fleet.lean_sampler import LeanSampler
from tare.fleet.local import run_study
from tare.fleet.ownership import put_back_all
from tare.fleet.readiness import Eligibility
from tare.fleet.schedule import Outcome
from tare.fleet.ssh import Unreachable
from tare.parts.protocols import Part, Probe
from tare.plan.check import MissingParts, ObstacleCheck, check, parts_of
from tare.plan.matrix import Cell, Trial, cells
from tare.records.store import Store
from tare.studies.load import loads
from tare.studies.model import Study
from tare.trial.device import device_id, private_folder
from tare.trial.facts import device_facts
from tare.trial.undo.journal import Journal
from tare_inside.jobs import may_pass, users_own

# One trial on a device without tare: the engine runs here, the job, the sampler and the lock are there.

_ENDS_WITHIN_S = 30.0  # an agent whose line broke: to notice it, and to clean up
_NEEDS_TARE = "needs tare on the device ({why}): put it there, and name its Python as `tare`."
_WHY_NOT_LEAN = {
    "platform": "a lean device runs `bare` only",
    "control": "nothing would restore it if the connection broke",
    "probe": "it is more than files to read",
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
        if why := _why_not_lean(kind, part):
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
    named: dict[str, dict[str, Part]] = {
        "platform": {part.part_name(): part for cell in cells for each in cell.everyone() for part in each.platforms},
        "control": {part.part_name(): part for cell in cells for part in cell.controls},
        "probe": {part.part_name(): part for cell in cells for part in cell.probes},
    }
    reported = [
        Ruling("needs.full-device", "obstacle", f"{kind} {name}", f"{kind} {name} {why}")
        for kind, parts in named.items()
        for name in sorted(parts)
        if (why := _why_not_lean(kind, parts[name]))
    ]
    if any(len(cell.everyone()) > 1 for cell in cells):
        sentence = f"tenants {_NEEDS_TARE.format(why='a lean device runs one workload at a time')}"
        reported.append(Ruling("needs.full-device", "obstacle", "tenants", sentence))
    return reported


def _why_not_lean(kind: str, part: Part) -> str:
    """Why only tare on the device itself can do this; empty where the device has to be asked."""
    on_lean = part.part_name() == "bare" or (isinstance(part, Probe) and part.reads_files_only)
    return "" if on_lean or kind not in _WHY_NOT_LEAN else _NEEDS_TARE.format(why=_WHY_NOT_LEAN[kind])


def no_room_there(host: LeanHost) -> list[Ruling]:
    """That the device is full, which is no fault of the study's."""
    free = int(host.line.said["free_bytes"])
    if free >= LEAST_FREE_BYTES:
        return []
    needed = f"{LEAST_FREE_BYTES >> 20} MiB needed."
    return [obstacle("fleet.full", f"no space left on this device: {free >> 20} MiB free in its memory, {needed}")]


@contextmanager
def owned_there(host: Host, say: Callable[[str], None], run: str) -> Iterator[tuple[Journal, Path]]:
    """The device, ours alone by its own lock, which the agent holds; what an earlier line left is swept first."""
    assert isinstance(host, LeanHost)
    own = state_dir() / "fleet" / "lean" / host.name
    device = device_id(host, own)
    _take(host, device, run)
    journal, scratch = Journal(private_folder(own / device), run), state_dir() / "scratch"
    try:
        put_back_all(host, journal, scratch, say)
        yield journal, scratch
        put_back_all(host, journal, scratch, say)
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


RESULT = "result.json"
REQUEST = "request.json"
LEAST_FREE_BYTES = 32 << 20  # a trial that could not be sealed would be a trial for nothing


class Lines:
    """A watcher whose words end in the claim's folder."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def started(self, total: int) -> None: ...
    def grown(self, by: int) -> None: ...
    def expects(self, seconds: float) -> None: ...
    def trial_again(self) -> None: ...
    def trial_began(self, label: str) -> None: ...
    def trial_ended(self, state: str, seconds: float) -> None: ...
    def finished(self) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def read_request(folder: Path) -> dict[str, Any]:
    """What the controller asked for."""
    request: dict[str, Any] = json.loads((folder / REQUEST).read_text())
    return request


def study_of(request: Mapping[str, Any]) -> Study:
    return loads(str(request["study"]), str(request["name"]))


def eligibility_here(request: Mapping[str, Any]) -> Eligibility:
    """Whether this device can run the study, and what is known of it now; or what it lacks, if that is asked."""
    if (theirs := request.get("tare", __version__)) != __version__:
        why = f"tare {__version__} is here, and {theirs} on the controller: their records are not to be mixed."
        return Eligibility(obstacles=(obstacle("fleet.other-version", why),))
    study, asks_what_is_missing = study_of(request), bool(request.get("leave_out"))
    here = cells_here(request, study)
    if lean := request.get("lean"):
        with driven(lean, float(request["patience_s"])) as there:
            if asks_what_is_missing:
                return _missing_here(here, LeanObstacleCheck(there))
            return _eligibility(obstacles_there(study, here, there), [*no_room_there(there), *_no_room()], there)
    host = LocalHost(python=_interpreter(request))
    if asks_what_is_missing:
        return _missing_here(here, ObstacleCheck(host), _no_interpreter(request))
    found = check(study, here, host, ignore_managers=bool(request.get("ignore_managers"))).blocked
    return _eligibility([*found, *_no_interpreter(request)], _no_room(), host)


def cells_here(request: Mapping[str, Any], study: Study) -> list[Cell]:
    """What this device is asked to run; the controller has settled what is left out of it."""
    return _missing_parts(request).kept(cells(study, device=_device(request)))


def platforms_here(request: Mapping[str, Any], study: Study) -> list[str]:
    """The platforms that stand on this machine during a trial; those of a lean device do not."""
    here = [] if request.get("lean") else cells_here(request, study)
    return [part.part_name() for cell in here for kind, part in parts_of(cell) if kind == "platform"]


def _eligibility(obstacles: Sequence[Ruling], own: Sequence[Ruling], host: Host) -> Eligibility:
    return Eligibility(tuple(obstacles), tuple(own), kernel=device_facts(host).get("kernel"), tare=__version__)


def _missing_here(here: Sequence[Cell], checks: ObstacleCheck, obstacles: Sequence[Ruling] = ()) -> Eligibility:
    """Which parts of these cells do not work; unless something stands in the way of all of them."""
    for kind, part in () if obstacles else [each for cell in here for each in parts_of(cell)]:
        checks.ask(kind, part)
    return Eligibility(tuple(obstacles), tare=__version__, missing=MissingParts(checks.stopped))


def run_here(request: Mapping[str, Any], study: Study) -> tuple[Outcome, list[str]]:
    """Run the one trial that the request names, unless it is done and not wanted again; how that ended, with notes."""
    trial = _the_trial(request, study)
    if full := _no_room():
        raise StoreError(str(full[0]))
    lines, retry, again = Lines(), bool(request.get("retry_failed")), bool(request.get("again"))
    with _store(request, study) as store:
        # When it is enough is for the controller to say, which sees all devices.
        plain = study.model_copy(update={"repeat": study.repeat.model_copy(update={"until": None, "within_s": None})})
        if lean := request.get("lean"):
            with driven(lean, float(request["patience_s"])) as there:
                outcome = run_study(
                    plain, [trial], store, there, lines, retry_failed=retry, again=again, owned=owned_there,
                    sampler=partial(LeanSampler, there),
                )  # fmt: skip
        else:
            host = LocalHost(python=_interpreter(request))
            outcome = run_study(plain, [trial], store, host, lines, retry_failed=retry, again=again)
    return outcome, lines.notes


def keep_result(folder: Path, code: int | None, text: str, notes: list[str]) -> None:
    """How it ended, on the disk, whole or not at all; without a code it came to no end, and may be tried again."""
    replace_file(folder / RESULT, json.dumps({"code": code, "text": text, "notes": notes}).encode())


def hold(descriptor: int) -> None:
    """The claim's lock is ours alone: what we start must not hold it after we have ended."""
    os.set_inheritable(descriptor, False)


def _the_trial(request: Mapping[str, Any], study: Study) -> Trial:
    for trial in planned_on(study, _device(request), _missing_parts(request)):
        if trial.id == request["trial"]:
            return trial
    raise TareError(
        f"the study makes another plan on this device: trial {request['trial']} is not in it.\n"
        "The device has another version of tare, or of a part: `tare device fleet check` shows both."
    )


def _missing_parts(request: Mapping[str, Any]) -> MissingParts:
    return MissingParts.from_json(request.get("lacking", ()))


def _device(request: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What the controller says of this device: its name, and its type where it has one."""
    return tuple((str(key), str(value)) for key, value in request.get("device", ()))


def _store(request: Mapping[str, Any], study: Study) -> Store:
    folder = state_dir() / "fleet" / "stores" / str(request["store"])
    if (folder / "store.json").exists():
        return Store.open(folder, write=True)
    make_folders(folder.parent)
    return Store.create(folder, study.as_plain(), json.dumps(study.as_plain(), indent=1))


def _no_room() -> list[Ruling]:
    state = state_dir()
    make_folders(state)
    if (free := free_bytes(state)) >= LEAST_FREE_BYTES:
        return []
    needed = f"{LEAST_FREE_BYTES >> 20} MiB needed."
    return [obstacle("fleet.full", f"no space left on this device: {free >> 20} MiB free in {state}, {needed}")]


def _interpreter(request: Mapping[str, Any]) -> str | None:
    """The workloads' Python as a whole path; none is named where it is our own."""
    return shutil.which(str(request["python"])) if request["python"] else sys.executable


def _no_interpreter(request: Mapping[str, Any]) -> list[Ruling]:
    if _interpreter(request) is not None:
        return []
    sentence = f"no {request['python']} on this device, which the inventory names for workloads."
    return [obstacle("needs.program", sentence)]
