"""Where a training workload writes its checkpoints: on a disk of wherever it runs, under the trial's own name."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path("/var/tmp")  # on a disk, where /tmp and desks may be memory; in a container it is its own layer
_DESK, _CHECKPOINTS = "-desk", "-checkpoints"


def checkpoint_folder(desk: Path) -> Path:
    """The folder for the tenant whose desk this is; a desk lies in memory, from where nothing is written back."""
    return of_site(desk.name.removesuffix(_DESK))


def of_site(name: str) -> Path:
    """The folder of this site: on bare metal it is the device's, and must go with the trial's others."""
    return FOLDER / f"{name}{_CHECKPOINTS}"
