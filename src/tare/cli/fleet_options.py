"""The options of `tare run` that name devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tare.errors import StudyError

_OPTIONS = (
    click.option("--fleet", type=click.Path(path_type=Path), help="Run on the devices of this inventory, over ssh."),
    click.option(
        "--on", multiple=True, metavar="NAME", help="Of the inventory only devices of this name, type or tag."
    ),
    click.option("--cluster", metavar="ADDRESS", help="A dask cluster whose workers are, or drive, the devices."),
    click.option("--patience", default="2 min", show_default=True, help="How long a device may be out of reach."),
)


@dataclass(frozen=True)
class Over:
    """Which devices, as the command line named them."""

    inventory: Path | None
    cluster: str | None
    on: tuple[str, ...]
    patience_s: float
    trust: bool

    def words(self) -> str:
        """The options that name the same devices again."""
        words = [f"--fleet {self.inventory}"] if self.inventory is not None else []
        words += [f"--cluster {self.cluster}"] if self.cluster is not None else []
        return " ".join([*words, *(f"--on {word}" for word in self.on)])


def fleet_options(command: Any) -> Any:
    """A command with these options; `over_devices` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def over_devices(said: Mapping[str, Any], trust: bool) -> Over | None:
    """None for a run on this device."""
    if said["fleet"] is None and said["on"]:
        raise StudyError("--on names devices of an inventory: give one with --fleet.")
    if said["fleet"] is None and said["cluster"] is None:
        return None
    return Over(said["fleet"], said["cluster"], said["on"], _patience_s(said["patience"]), trust)


def _patience_s(text: str) -> float:
    from tare.study.times import time_between

    try:
        return time_between(1, 86400, "from 1 s to 1 d", "2 min")(text)
    except ValueError as error:
        raise StudyError(f"--patience: {str(error).replace('{given}', repr(text))}.") from None
