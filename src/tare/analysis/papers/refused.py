"""Studies that a machine refused: `not-run.json` beside its stores, {"study": ["a sentence of the refusal", ...]}.

A study that cannot be run leaves no store behind, and would look forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tare.errors import StoreError
from tare.records import strict

Refused: TypeAlias = Mapping[str, tuple[str, ...]]  # study -> the sentences of the refusal
NOT_RUN_FILE = "not-run.json"
_LEFT_OUT = "probe "
_SHOWN = 3
_FORM = 'It is written {"s3-dvfs": ["dvfs: this kernel sets no clocks."]}: a study, and what `tare run` said of it'


def refused(folder: Path) -> dict[str, tuple[str, ...]]:
    """What the file of a machine's folder says; nothing where there is none."""
    path = folder / NOT_RUN_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{path}: it cannot be read: {error.strerror}.") from None
    try:
        written = strict.load(data)
    except ValueError as error:
        raise StoreError(f"{path}: this is not JSON: {error}. {_FORM}.") from None
    if not isinstance(written, dict):
        raise StoreError(f"{path}: there is no object in it. {_FORM}.")
    return {study: _sentences(path, study, said) for study, said in written.items()}


def _sentences(path: Path, study: str, said: Any) -> tuple[str, ...]:
    if not isinstance(said, list) or not said or not all(isinstance(each, str) and each.strip() for each in said):
        raise StoreError(f"{path}: {study!r} has no list of sentences. {_FORM}.")
    return tuple(each.strip() for each in said)


def cannot_be_run(study: str, sentences: Sequence[str]) -> str:
    """`s3-dvfs cannot be run there: control dvfs: this device has no clocks that could be fixed`.

    A probe that is missing is left out and stops no study, so its sentence is told only where there is no other.
    """
    told = [each for each in sentences if not each.startswith(_LEFT_OUT)] or list(sentences)
    more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return f"{study} cannot be run there: {'; '.join(each.rstrip('.') for each in told[:_SHOWN])}{more}"
