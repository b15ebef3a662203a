"""Finding the study that a verb was given: a file, or one of ours by name."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path

from tare.errors import StudyError
from tare.study.load import load
from tare.study.model import Study


def built_in() -> dict[str, Path]:
    """The studies that come with tare, by name."""
    folder = Path(str(resources.files("tare.studies")))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def study_path(study: Path) -> Path:
    """The file itself, or the built-in study of that name."""
    if study.exists():
        return study
    ours = built_in()
    if str(study) in ours:
        return ours[str(study)]
    close = difflib.get_close_matches(str(study), ours, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Studies here by name: {', '.join(ours)}."
    raise StudyError(f"{study}: there is no such study file. {hint}")


def load_study(study: Path, trust: bool = False) -> Study:
    return load(study_path(study), trust=trust)
