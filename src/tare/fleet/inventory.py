"""The devices of a fleet, as `devices.yaml` lists them, and which trials of a study each of them has to run.

The file is typed and frozen, and every mistake in it is said with its line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tare.base.errors import StudyError
from tare.plan.check import NOTHING, MissingParts
from tare.plan.matrix import Trial, cells, trials
from tare.studies.fields import explain
from tare.studies.load import decoded, read
from tare.studies.model import ID_FORM, Study
from tare.studies.select import DEVICE_KEYS, Selector
from tare.studies.yaml import Complaint, Fatal, Loc, Problem, Source, listed, parse, suggestion

OF = "inventory"
MOST_DEVICES = 10_000
MOST_BYTES = MOST_DEVICES << 10  # a kilobyte each, with host key and comments
MOST_VALUES = 40 * MOST_DEVICES  # every field, its name, tags
LEAN = "none"  # in the place of an interpreter that has tare: the device is driven from here
_HOW = "An inventory is 'devices:' and under it a list, like '- {name: orin-1, address: 192.168.7.11}'."
# What begins with a dash would be an option of ssh; the rest keeps words apart that ssh takes as one.
_ADDRESS = re.compile(r"[A-Za-z0-9:\[][A-Za-z0-9._:%\[\]-]{0,254}")
_JUMP = re.compile(
    r"(?P<user>[A-Za-z0-9_][A-Za-z0-9._@-]{0,127}@)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]{0,254}))(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_LAST_PORT = 65535
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_HOST_KEY = re.compile(r"[a-z0-9@.-]{1,64} [A-Za-z0-9+/]{16,4096}={0,2}")


def _form(pattern: re.Pattern[str], what: str) -> BeforeValidator:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("must be text, not {given}; put it in quotes")
        if not pattern.fullmatch(value):
            raise ValueError(f"{{given}} is no {what}")
        return value

    return BeforeValidator(check)


def _command(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9/_.][^\0\n\r]{0,254}", value):
        raise ValueError("{given} is no name of an interpreter; write it like '/usr/bin/python3'")
    return value


def _jump(value: str) -> str:
    if "," in value:
        raise ValueError(
            "{given} is more than one jump host; make a Host with ProxyJump of them in ~/.ssh/config, and name that"
        )
    found = _JUMP.fullmatch(value)
    if found is None or int(found["port"] or 1) > _LAST_PORT:
        raise ValueError("{given} is no jump host; write it like 'user@gate.example:22' or 'user@[fd00::1]:22'")
    return value


def jump_of(jump: str) -> tuple[str, str | None]:
    """A jump host as ssh takes it, `user@host` and the port; without one ssh's own files decide."""
    found = _JUMP.fullmatch(jump)
    assert found is not None, "it was looked at when the inventory was read"
    return f"{found['user'] or ''}{found['six'] or found['host']}", found["port"]


Name = Annotated[str, _form(re.compile(ID_FORM), "name; it has 1 to 64 of the characters A-Z a-z 0-9 . _ -")]
Command = Annotated[str, AfterValidator(_command)]


class Device(BaseModel):
    """One device, and how it is reached."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    """What it is called in records, as the factor `device`."""

    address: Annotated[str, _form(_ADDRESS, "address; write a host name, an IP address or a Host of ~/.ssh/config")]
    user: Annotated[str, _form(_USER, "user")] | None = None
    port: Annotated[int, Field(ge=1, le=_LAST_PORT, strict=True)] | None = None

    type: Name | None = None
    """Devices of one type are identical: the factor `device.type`."""

    tags: tuple[Name, ...] = ()
    python: Command = "python3"
    """The interpreter of workloads there, Python 3.6 or newer; what tare copies to the device runs on it too."""

    tare: Command | None = None
    """The interpreter that has tare (Python 3.11 or newer); unless told, `python`. `none`: there is none, and trials
    there are driven from the controller, on bare metal and without controls."""

    jump: Annotated[str, AfterValidator(_jump)] | None = None
    """The host by way of which it is reached, `user@host:port`. The rules that hold for the device hold for it too."""

    jump_host_key: Annotated[str, _form(_HOST_KEY, "host key; write it like 'ssh-ed25519 AAAA...'")] | None = None
    """The jump host's own host key; `key` is then used there too. Unless told, ssh's own files and choice."""

    key: Path | None = None
    """The private key to log in with; unless told, ssh's own choice."""

    known_hosts: Path | None = None
    """The file that holds the device's host key; unless told, ssh's own. A key that is not in it is refused."""

    host_key: Annotated[str, _form(_HOST_KEY, "host key; write it like 'ssh-ed25519 AAAA...'")] | None = None
    """The device's host key itself; then no file is asked."""

    @property
    def engine(self) -> str:
        """The interpreter that has tare."""
        return self.tare or self.python

    @property
    def lean(self) -> bool:
        """Whether the device has no tare, and is driven from the controller."""
        return self.tare == LEAN

    def is_called(self, word: str) -> bool:
        """Whether a word of the command line means this device: its name, its type, or one of its tags."""
        return word in (self.name, self.type, *self.tags)


class Inventory(BaseModel):
    """A whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    devices: Annotated[tuple[Device, ...], Field(min_length=1, max_length=MOST_DEVICES)]

    def called(self, words: Sequence[str]) -> tuple[Device, ...]:
        """The devices that these names, types or tags mean; all of them where there is none."""
        for word in words:
            if not any(device.is_called(word) for device in self.devices):
                known = [device.name for device in self.devices]
                raise StudyError(f"no device is called {word!r}. Available: {listed(known)}.{suggestion(word, known)}")
        return tuple(one for one in self.devices if not words or any(one.is_called(word) for word in words))


def load_inventory(path: Path, *, trust: bool = False) -> Inventory:
    """The devices in a file; paths in it are relative to its folder."""
    found = parse_inventory(read(path, trust=trust, most_bytes=MOST_BYTES), str(path))
    return found.model_copy(update={"devices": tuple(_resolved(one, path.parent) for one in found.devices)})


def parse_inventory(text: str | bytes, name: str = "devices.yaml") -> Inventory:
    """The devices in a text; `name` stands for the file in messages."""
    try:
        root, problems = parse(decoded(text, MOST_BYTES), MOST_VALUES)
    except Fatal as fatal:
        raise Source(name).error([fatal.problem]) from None
    source, data = Source(name, root), root.plain()
    if not isinstance(data, dict):
        raise source.error([Problem(root.line, root.column, _HOW)])
    try:
        inventory = Inventory.model_validate(data)
    except ValidationError as error:
        raise source.error([*problems, *map(source.problem, _complaints(error, data))]) from None
    problems += [source.problem(one) for one in _twice(inventory)]
    if problems:
        raise source.error(problems)
    return inventory


def _complaints(error: ValidationError, data: Any) -> list[Complaint]:
    """What is wrong, each at its own entry: what an entry lacks stands where the entry does."""
    errors = error.errors(include_url=False)
    if any(len(detail["loc"]) > 1 for detail in errors):  # a list without its wrong entries is not too short
        errors = [detail for detail in errors if detail["type"] != "too_short"]
    missing = {detail["loc"] for detail in errors if detail["type"] == "missing" and len(detail["loc"]) > 1}
    keys = list(Device.model_fields)
    known: dict[Loc, Sequence[str]] = {(): list(Inventory.model_fields)}
    known |= {("devices", index): keys for index in range(MOST_DEVICES)}
    reported = explain(errors, data, of=OF, known=known)
    return [Complaint(one.loc[:-1], one.text) if one.loc in missing else one for one in reported]


def _twice(inventory: Inventory) -> list[Complaint]:
    """Two entries of one name, or for one place: two trials could then meet on one device."""
    found: list[Complaint] = []
    names: dict[str, str] = {}
    places: dict[tuple[Any, ...], str] = {}
    for index, device in enumerate(inventory.devices):
        if device.name in names:
            found.append(Complaint(("devices", index, "name"), "the name {given} is given twice."))
        elif (place := (device.address, device.port, device.jump)) in places:
            reported = f"{{given}} is the address of {places[place]!r} too: one device has one entry."
            found.append(Complaint(("devices", index, "address"), reported))
        names[device.name] = places[device.address, device.port, device.jump] = device.name
    return found


def _resolved(device: Device, folder: Path) -> Device:
    paths = {key: getattr(device, key) for key in ("key", "known_hosts")}
    return device.model_copy(
        update={key: (folder / path.expanduser()).absolute() for key, path in paths.items() if path is not None}
    )


# What each device has to run, and how one of its trials is told to it


@dataclass(frozen=True)
class Task:
    """What is the same for every trial of one run over a fleet."""

    text: str  # the study as it was written: every device makes the same plan of it
    name: str  # the file, for messages
    store: str  # what the devices call the store that this run fills
    run: str  # a word of this run's own
    retry_failed: bool = False
    ignore_managers: bool = False
    accept_changes: bool = False
    leaves_out: bool = False  # the study says that what is missing may be
    missing: MissingParts = NOTHING  # what is left out on every device


def factors(device: Device) -> tuple[tuple[str, str], ...]:
    """The device as a factor of its trials: its name, and its type where it has one."""
    return (("device", device.name), *((("device.type", device.type),) if device.type else ()))


def on_device(planned: Sequence[Trial], device: tuple[tuple[str, str], ...]) -> list[Trial]:
    """The same trials, for this device: they have ids of their own, so that none is taken for another's."""
    return [replace(trial, cell=replace(trial.cell, device=device)) for trial in planned]


def planned_on(study: Study, device: tuple[tuple[str, str], ...], missing: MissingParts = NOTHING) -> list[Trial]:
    """The study's whole plan, for one device; empty where the study excludes it."""
    return trials(study, missing.kept(cells(study, device=device)))


def plans(study: Study, devices: Sequence[Device], missing: MissingParts = NOTHING) -> dict[Device, list[Trial]]:
    """What each device has to run, without cells of what is lacking; one that the study excludes is not among them."""
    if study.for_fleet is None:  # then one plan does for all
        planned = trials(study, missing.kept(cells(study)))
        return {device: on_device(planned, factors(device)) for device in devices}
    refuse_unknown(study, devices)
    found = {device: planned_on(study, factors(device), missing) for device in devices}
    kept = {device: planned for device, planned in found.items() if planned}
    if not kept:
        raise StudyError(f"{study.source.at('exclude')}the exclusions leave no cell to run on any device.")
    return kept


def refuse_unknown(study: Study, devices: Sequence[Device]) -> None:
    """A study that names a device, or a type, which this run has not."""
    places: list[tuple[Loc, Selector]] = [(("compare", "against"), study.compare.baseline)]
    places += [(("exclude", index), selector) for index, selector in enumerate(study.exclude)]
    for loc, selector in places:
        for key, wanted in selector.devices.items():
            known = list(dict.fromkeys(level for device in devices if (level := dict(factors(device)).get(key))))
            for level in wanted:
                if level not in known:
                    there = f"Available: {listed(known)}." if known else "No device of this run has one."
                    where = study.source.at(*loc, key)
                    raise StudyError(
                        f"{where}no {key} of this run is called {level!r}.\n  {there}{suggestion(level, known)}"
                    )
    by = study.compare.by
    if by in DEVICE_KEYS and len({dict(factors(device)).get(by) for device in devices}) < 2:
        raise StudyError(f"{study.source.at('compare')}a comparison by {by} takes two of them, and this run has one.")


def claim(trial: Trial, task: Task, number: int) -> str:
    """The name of one try at a trial: a device starts it once, however often it is told to."""
    return f"{trial.id}.{task.run}.{number}"


def question(
    trial: Trial, device: Device, task: Task, number: int, have: Sequence[str], *, again: bool = False
) -> dict[str, Any]:
    """What the agent on the device is asked; it is kept there, for whoever looks what ran. `again`: also if it ran."""
    return {
        "do": "run",
        "claim": claim(trial, task, number),
        "store": task.store,
        "have": list(have),
        "engine": device.engine,
        "python": device.python,
        "study": task.text,
        "name": task.name,
        "trial": trial.id,
        "limit_s": trial.limit_s,
        "device": [list(pair) for pair in factors(device)],
        "retry_failed": task.retry_failed,
        "again": again,
        "ignore_managers": task.ignore_managers,
        "lacking": task.missing.as_json(),
    }
