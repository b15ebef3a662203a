"""Where synthetic data sets lie on the device, and how one is made there: once, before anything is measured."""

from __future__ import annotations

import os
from pathlib import Path

from tare.base.errors import TareError
from tare.base.host import Host, OwnDevice
from tare.base.rulings import Ruling, obstacle
from tare.drivers.places import SOURCE
from tare_inside import named

DATA_SEED = 0  # the data are the same in every trial; what a trial's seed changes is their order and the first weights
_LONGEST_S = 3600.0


def data_dir() -> Path:
    """Where data sets are kept: $TARE_DATA, else the user's cache."""
    if own := os.environ.get("TARE_DATA"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tare" / "data"


def synthetic_folder(data: str, count: int, seed: int = DATA_SEED) -> Path:
    """The folder of a synthetic data set of so many items."""
    return data_dir() / f"{data}-{count}-{seed}"


def make_synthetic(host: Host, data: str, count: int) -> None:
    """Make the data set unless it is there, whole."""
    from tare_inside.workloads.formats.make import is_whole

    folder = synthetic_folder(data, count)
    order = {"data": data, "count": count, "seed": DATA_SEED}
    if isinstance(host, OwnDevice) and is_whole(str(folder), order):
        return  # seen here, before every trial, without another Python that would only look
    argv = [
        host.python,
        str(SOURCE / "workloads" / "formats" / "make.py"),
        data,
        str(folder),
        str(count),
        str(DATA_SEED),
    ]
    made = host.run(argv, limit_s=_LONGEST_S)
    if made.code != 0:
        raise TareError(
            f"the data set {data} could not be made in {folder}.\n"
            f"{(made.err or made.out).strip()[-1000:]}\nSet TARE_DATA to a folder with room for it."
        )


def folder_obstacles(data: str, folder: Path, count: int) -> list[Ruling]:
    """Why a folder of the user's own cannot be used as so many items of this data set."""
    try:
        folder.stat()
    except FileNotFoundError:
        sentence = f"no folder {folder}: `data_path` is where your own {data} files lie."
        return [obstacle("needs.data", sentence)]
    except (OSError, ValueError) as problem:
        return [obstacle("needs.data", str(problem))]
    sentence = named.find("data", data).obstacle(str(folder), count)
    return [] if sentence is None else [obstacle("needs.data", str(sentence))]
