"""Which trials each device of a fleet has to run, and how one of them is told to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tare.base.errors import StudyError
from tare.fleet.inventory import Device
from tare.plan.check import NOTHING, MissingParts
from tare.plan.matrix import cells, trials
from tare.plan.model import Trial
from tare.studies.model import Study
from tare.studies.select import DEVICE_KEYS, Selector
from tare.studies.yaml import Loc, listed, suggestion


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
