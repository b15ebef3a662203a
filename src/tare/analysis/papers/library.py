"""The papers' files, typed when they are read."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import ValidationError
from ruamel.yaml import YAML

from tare.analysis.compare import unknown_name
from tare.analysis.papers.model import Paper
from tare.errors import StudyError

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The papers that have a file here, in order."""
    return sorted(path.stem for path in _FOLDER.glob("s*.yaml"))


@cache
def paper(name: str) -> Paper:
    """One of them by its short name, `s0` or `S0`."""
    if name.lower() not in names():
        raise StudyError(unknown_name("paper", name, names()))
    return read(_FOLDER / f"{name.lower()}.yaml")


def read(path: Path) -> Paper:
    """A file of this form; what is wrong with it is told."""
    try:
        return Paper.model_validate(YAML(typ="safe").load(path))
    except ValidationError as error:
        raise StudyError(f"{path}: {error}") from None
