"""Where synthetic data sets lie on the device, and how one is made there: once, before anything is measured."""

from __future__ import annotations

import os
from pathlib import Path

from tare.errors import TareError
from tare.host import Host
from tare.parts.inside import SOURCE
from tare_inside import named

DATA_SEED = 0  # the data are the same in every trial; what a trial's seed changes is their order and the first weights
_LONGEST_S = 3600.0


def data_dir() -> Path:
    """Where data sets are kept: $TARE_DATA, else the user's cache."""
    if own := os.environ.get("TARE_DATA"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tare" / "data"


def synthetic_folder(data: str, count: int) -> Path:
    """The folder of a synthetic data set of so many items."""
    return data_dir() / str(named.find("data", data).folder_name(count, DATA_SEED))


def make_synthetic(host: Host, data: str, count: int) -> None:
    """Make the data set unless it is there, whole."""
    folder = synthetic_folder(data, count)
    argv = [host.python, str(SOURCE / "making.py"), data, str(folder), str(count), str(DATA_SEED)]
    made = host.run(argv, limit_s=_LONGEST_S)
    if made.code != 0:
        raise TareError(
            f"the data set {data} could not be made in {folder}.\n"
            f"{(made.err or made.out).strip()[-1000:]}\nSet TARE_DATA to a folder with room for it."
        )


def folder_obstacle(data: str, folder: Path, count: int) -> str | None:
    """Why a folder of the user's own cannot be used as so many items of this data set; None if it can."""
    try:
        folder.stat()
    except FileNotFoundError:
        return f"there is no folder {folder}: `data_path` is where your own {data} files lie."
    except (OSError, ValueError) as problem:
        return str(problem)
    sentence = named.find("data", data).obstacle(str(folder), count)
    return None if sentence is None else str(sentence)
