"""`tare device fleet`: look at the devices of an inventory; and what the controller has a device do."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tare.api.needs import needs_of
from tare.base.errors import LineLost, TareError
from tare.cli.options import json_option, trust_option
from tare.cli.scaffold import Verbs, print_json, say, width

if TYPE_CHECKING:
    from tare.fleet.inspect import Inspection


@click.group("fleet", cls=Verbs)
def command() -> None:
    """Check the devices of a fleet, or be a worker of one; `tare run STUDY --fleet FILE` runs a study on it."""


@command.command("check")
@click.argument("inventory", type=click.Path(path_type=Path), default=Path("devices.yaml"))
@click.option("--on", "words", multiple=True, metavar="NAME", help="Only devices of this name, type or tag.")
@trust_option
@json_option
def check(inventory: Path, words: tuple[str, ...], trust: bool, as_json: bool) -> None:
    """Check each device of INVENTORY: is it reachable, what can it do, who uses it now."""
    from tare.fleet.inspect import inspect_all_devices
    from tare.fleet.inventory import load_inventory

    found = inspect_all_devices(load_inventory(inventory, trust=trust).called(words))
    if as_json:
        print_json({"devices": [device.as_json() for device in found]})
    else:
        _tell(found)
    if not all(device.ready for device in found):
        raise SystemExit(1)


def _tell(found: Sequence[Inspection]) -> None:
    from tare.report.columns import table

    head = ["device", "type", "ready", "tare", "python", "free", "clock", "platforms"]
    click.echo(table([_row(device) for device in found], head, width()))
    for device in found:
        for trouble in device.troubles:
            say(f"{device.name}: {trouble}")


def _row(device: Inspection) -> list[str]:
    free = "" if device.free_bytes is None else f"{device.free_bytes / 2**30:.1f} GiB"
    within = device.clock_within_s or 0.0
    clock = "" if device.clock_offset_s is None else f"{device.clock_offset_s:+.2f} ±{within:.2f} s"
    ready = "yes" if device.ready else "no" if device.reachable else "unreachable"
    tare = "lean" if device.driven == "lean" else device.tare
    words = [device.name, device.type, ready, tare, device.python, free, clock, " ".join(device.platforms or ())]
    return [word or "" for word in words]


@command.command("worker")
@click.option("--cluster", "address", required=True, metavar="ADDRESS", help="The scheduler, like tls://10.0.0.1:8786.")
@click.option("--name", help="What this device is called, as the factor `device`; its host name by default.")
@click.option("--ca", type=click.Path(path_type=Path), help="TLS: who vouches for the others.")
@click.option("--cert", type=click.Path(path_type=Path), help="TLS: who vouches for this worker.")
@click.option("--key", type=click.Path(path_type=Path), help="TLS: this worker's private key.")
def worker(address: str, name: str | None, ca: Path | None, cert: Path | None, key: Path | None) -> None:
    """Be a worker of a dask cluster, on this device, until the scheduler goes; as quiet as dask can be made."""
    import os

    from tare.fleet.dask_processes import is_encrypted, over_tls, require_dask, worker_command, worker_environment

    given = {"--tls-ca-file": ca, "--tls-cert": cert, "--tls-key": key}
    keys = {option: path for option, path in given.items() if path is not None}
    require_dask()
    address = over_tls(address)
    argv = worker_command(address, name or os.uname().nodename, keys)
    if not is_encrypted(address):
        say(f"{address} is not encrypted: whoever can reach it can run what they like on this device.")
    os.execve(argv[0], argv, worker_environment(address))


@command.command("obstacles", hidden=True)
def obstacles() -> None:
    """Say whether this device can run the study on standard input; the controller of a fleet asks this."""
    from tare.fleet.on_device import eligibility_here, platforms_here, study_of

    request = json.loads(sys.stdin.readline())
    with needs_of(platforms_here(request, study_of(request))):
        print_json(eligibility_here(request).as_json())


@command.command("trial", hidden=True)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("lock", type=int)
def trial(folder: Path, lock: int) -> None:
    """Run the trial that the controller of a fleet has claimed in FOLDER."""
    from tare.fleet.on_device import hold, keep_result, platforms_here, read_request, run_here, study_of

    hold(lock)
    request = read_request(folder)
    try:
        study = study_of(request)
        with needs_of(platforms_here(request, study)):
            outcome, notes = run_here(request, study)
    except LineLost as error:
        keep_result(folder, None, str(error), [])
        raise
    except TareError as error:
        keep_result(folder, error.exit_code, str(error), [])
        raise
    except Exception:  # whoever waits for an answer at the other end must have one
        keep_result(folder, 1, traceback.format_exc(limit=-4), [])
        raise
    # Asked to stop (the device is shut down, say), it has restored the settings, and the trial has not come to its end.
    keep_result(folder, None if outcome.interrupted else 0, outcome.why if outcome.interrupted else "", notes)
