"""`tare device`: how the device stands, what it can be set to, and putting it back; needs no study and no store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from tare.cli import restore
from tare.cli.options import json_option, print_json, say

_TUPLE = ("cores", "cpu_mhz", "gpu_mhz", "mem_mhz")


@click.group("device")
def command() -> None:
    """Look at the device: what a run has changed on it, which power modes it has; put it back."""


command.add_command(restore.command, "restore")


@command.command("status")
@json_option
def status(as_json: bool) -> None:
    """Print each knob that a run has turned: as found, now, whose run it was and when. Changes nothing."""
    from tare.host import LocalHost
    from tare.trial import restoration
    from tare.trial.device import device_id, out_of_sight, state_dir
    from tare.trial.journal import Journal

    host = LocalHost()
    device = device_id(host)
    journal = Journal(state_dir() / "devices" / device)
    rows = restoration.status(host, journal)
    unseen = out_of_sight()
    changed = [row for row in rows if row.trouble or row.baseline is None or row.now != row.baseline]
    if as_json:
        knobs = [{**asdict(row), "changed": row in changed} for row in rows]
        told = {"device": device, "changed": len(changed), "knobs": knobs, "problems": journal.problems}
        print_json({**told, "out_of_sight": unseen} if unseen else told)
        return
    restore.tell_rows(rows)
    for problem in journal.problems:
        say(problem)
    if unseen:
        say(unseen)
    elif not rows:
        say("no run has left anything changed: the device is as it was found.")


@command.command("modes")
@json_option
def modes(as_json: bool) -> None:
    """List everything that `power_mode` can set here, with all supported values.

    --json: {"modes": [NAME, ...], "values": {FIELD: [VALUE, ...] or {"from", "to"}}, "combinations"}. Modes are those
    that the board itself names (MAXN, no limits, is known everywhere); fields are those of `power_mode`, in its units,
    and one that the device lacks is absent; combinations is how many tuples of cores and clocks there are, or null
    where a clock can be anything from one value to another.
    """
    from tare.host import LocalHost

    found = supported(LocalHost())
    if as_json:
        print_json(found)
        return
    names, values = found["modes"], found["values"]
    if not names and not values:
        say("nothing can be set on this device: no cores with switches, no CPU clocks, no GPU that can be locked.")
        return
    click.echo(f"mode: {', '.join(names) if names else 'MAXN (no limits)'}")
    for field, value in values.items():
        click.echo(f"{field}: {_shown(value)}")
    if found["combinations"] is not None:
        counts = " x ".join(str(len(values[field])) for field in _TUPLE if field in values)
        click.echo(f"{counts} = {found['combinations']:,} combinations")


def supported(host: Any) -> dict[str, Any]:
    """The modes with names, the values of each field, and how many combinations of cores and clocks those make."""
    from tare.parts.power.everything import offered

    values: dict[str, Any] = {}
    for field, backends in offered(host).items():
        had = backends[0].values(host).get(field)
        if had:
            values[field] = {"from": had[0], "to": had[1]} if isinstance(had, tuple) else list(had)
    names = values.pop("mode", [])
    order = [*_TUPLE, *sorted(values.keys() - set(_TUPLE))]
    return {"modes": names, "values": {key: values[key] for key in order if key in values}, **_counted(values)}


def _counted(values: Mapping[str, Any]) -> dict[str, Any]:
    lists = [values[field] for field in _TUPLE if field in values]
    countable = bool(lists) and all(isinstance(one, list) for one in lists)
    return {"combinations": math.prod(len(one) for one in lists) if countable else None}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['from']:g} to {value['to']:g}"
    return " ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value)
