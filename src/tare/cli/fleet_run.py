"""`tare run --fleet`, `tare run --cluster`: the same study over many devices."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.cli.changes import refuse_silent_changes
from tare.cli.options import say
from tare.cli.run import finish, open_store, row, study_text
from tare.errors import ObstacleError, StudyError

if TYPE_CHECKING:
    from tare.cli.fleet_options import Over
    from tare.fleet.inventory import Device
    from tare.fleet.local import Outcome
    from tare.study.model import Study


@dataclass(frozen=True)
class Wanted:
    """What is to be run there."""

    study: Study
    text: str
    name: str
    folder: Path
    accept_changes: bool
    retry_failed: bool
    ignore_managers: bool


class Lines:
    """One line for each trial that has ended."""

    def __init__(self) -> None:
        self._total = self._done = 0

    def started(self, trials: int, devices: int) -> None:
        self._total = trials
        say(f"{trials} trials to run on {devices} devices")

    def ended(self, device: str, label: str, state: str, seconds: float) -> None:
        self._done += 1
        say(f"[{self._done}/{self._total}] {device}: {label}: {state}, {seconds:.1f} s")

    def note(self, text: str) -> None:
        say(text)


def run_over(wanted: Wanted, over: Over, as_json: bool, again: str) -> None:
    """Run, then say what came of it; exit 1 where a device had to be given up."""
    outcome, given_up = _run(wanted, over)
    for sentence in given_up.values():
        say(f"given up: {sentence}")
    if outcome.interrupted:
        say(f"{outcome.left} trials left; `{again}` goes on, and collects what the devices have finished by then.")
        raise SystemExit(130)
    finish(wanted.folder, outcome, as_json, again)
    if given_up:
        say(f"`{again}` goes on with them once they are there.")
        raise SystemExit(1)


def _run(wanted: Wanted, over: Over) -> tuple[Outcome, dict[str, str]]:
    from tare.fleet.incoming import name_on_devices
    from tare.fleet.orders import Task, plans
    from tare.fleet.running import FleetRun
    from tare.fleet.signals import Interruption

    _refuse_secrets(wanted.study)
    if over.inventory is not None:
        plans(wanted.study, _devices(over))  # what is wrong with it is said before anything is started
    with _cluster(over) as (cluster, devices), open_store(wanted.study, wanted.text, wanted.folder) as store:
        planned = plans(wanted.study, devices)
        for device in devices:
            if device not in planned:
                say(f"{device.name}: the study excludes it, so nothing is run there.")
        everything = sorted((one for its in planned.values() for one in its), key=lambda one: (one.block, one.position))
        refuse_silent_changes(store, wanted.study, everything, wanted.accept_changes)
        store.plan([row(trial) for trial in everything])
        text, name = study_text(wanted.study), name_on_devices(store)
        task = Task(text, wanted.name, name, os.urandom(4).hex(), wanted.retry_failed, wanted.ignore_managers)
        lines = Lines()
        interruption = Interruption(lines.note)
        fleet = FleetRun(wanted.study, task, planned, store, cluster, lines, interruption, over.patience_s)
        with interruption.watching():
            fleet.ready()
            fleet.collect()
            return fleet.run(), fleet.drained


def _refuse_secrets(study: Study) -> None:
    """A secret would lie in a file on every device for as long as the trial runs."""
    beside = [choice for level in study.tenancies for choice in level.beside]
    if any(choice.hides for choice in (*study.workloads, *beside)):
        raise StudyError(f"{study.study} holds a secret, and secrets are not sent to the devices of a fleet.")


@contextmanager
def _cluster(over: Over) -> Iterator[tuple[Any, Sequence[Device]]]:
    """Workers, and the devices that they drive."""
    from tare.fleet.cluster import OwnCluster, ThereCluster

    devices = _devices(over)
    cluster: Any
    if over.cluster is None:
        cluster = OwnCluster([device.name for device in devices])
    else:
        if over.cluster.startswith("tcp://"):
            say(f"{over.cluster} is not encrypted: whoever can reach it can run what they like on its workers.")
        cluster = ThereCluster(over.cluster)
    try:
        yield cluster, devices if over.cluster is None else _driven(cluster.names(), devices, over.cluster)
    finally:
        cluster.close()


def _devices(over: Over) -> Sequence[Device]:
    from tare.fleet.inventory import load_inventory

    if over.inventory is None:
        return ()
    return load_inventory(over.inventory, trust=over.trust).called(over.on)


def _driven(names: Sequence[str], devices: Sequence[Device], address: str) -> Sequence[Device]:
    """The inventory's devices, each by the worker of its name; without an inventory each worker is a device."""
    from tare.fleet.driving import here

    if not names:
        raise ObstacleError(f"no worker at {address} says that it is a device: start it with --resources device=1.")
    if not devices:
        return [here(name) for name in names]
    if missing := sorted({device.name for device in devices} - set(names)):
        raise StudyError(f"no worker at {address} is called {', '.join(missing)}. Workers there: {', '.join(names)}.")
    return devices
