"""Paths in studies: only absolute ones, since a study may be run from any folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator


def absolute(path: Path) -> Path:
    """The same path; a relative one is refused."""
    if not path.is_absolute():
        raise ValueError(f"{path} is not absolute; write the whole path, from / on")
    return path


AbsolutePath: TypeAlias = Annotated[Path, AfterValidator(absolute)]
