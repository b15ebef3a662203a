"""The folder that a trial's checkpoints go to."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path("/var/tmp")  # on a disk, where /tmp and workdirs may be memory; in a container it is its own layer
_WORKDIR, _CHECKPOINTS = "-workdir", "-checkpoints"


def checkpoint_folder(workdir: Path) -> Path:
    """The folder for the tenant whose workdir this is; a workdir lies in memory, from where nothing is written back."""
    return checkpoints_of_site(workdir.name.removesuffix(_WORKDIR))


def checkpoints_of_site(name: str) -> Path:
    """The folder of this site: on bare metal it is the device's, and must go with the trial's others."""
    return FOLDER / f"{name}{_CHECKPOINTS}"
