"""Which trials each device of a fleet has to run, and how one of them is told to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tare.fleet.inventory import Device
from tare.plan.matrix import cells
from tare.plan.model import Trial
from tare.plan.order import trials
from tare.study.model import Study


@dataclass(frozen=True)
class Task:
    """What is the same for every trial of one run over a fleet."""

    text: str  # the study as it was written: every device makes the same plan of it
    name: str  # the file, for messages
    store: str  # what the devices call the store that this run fills
    run: str  # a word of this run's own
    retry_failed: bool = False
    ignore_managers: bool = False


def factors(device: Device) -> tuple[tuple[str, str], ...]:
    """The device as a factor of its trials: its name, and its type where it has one."""
    return (("device", device.name), *((("device.type", device.type),) if device.type else ()))


def on_device(planned: Sequence[Trial], device: tuple[tuple[str, str], ...]) -> list[Trial]:
    """The same trials, for this device: they have ids of their own, so that none is taken for another's."""
    return [replace(trial, cell=replace(trial.cell, device=device)) for trial in planned]


def planned_on(study: Study, device: tuple[tuple[str, str], ...]) -> list[Trial]:
    """The study's whole plan, for one device."""
    return on_device(trials(study, cells(study)), device)


def claim(trial: Trial, task: Task, number: int) -> str:
    """The name of one try at a trial: a device starts it once, however often it is told to."""
    return f"{trial.id}.{task.run}.{number}"


def question(trial: Trial, device: Device, task: Task, number: int, have: Sequence[str]) -> dict[str, Any]:
    """What the agent on the device is asked; it is kept there, for whoever looks what ran."""
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
        "device": [list(pair) for pair in factors(device)],
        "retry_failed": task.retry_failed,
        "ignore_managers": task.ignore_managers,
    }
