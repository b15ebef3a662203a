"""The interpreter of a study's workloads, where it is named beside the study and not in it (`--python`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tare.errors import StudyError
from tare.parts.protocols import Json
from tare.study.choice import PartChoice
from tare.study.model import Study

_FIELD = "python"


def with_python(study: Study, path: str) -> Study:
    """The same study, in which every workload that can have an interpreter of its own, and names none, has this one.

    Neighbours are workloads too. The choices are changed, and not the plain data, which have lost their secrets.
    """
    workloads = tuple(_with(choice, path) for choice in study.workloads)
    tenancies = tuple(
        replace(level, beside=tuple(_with(choice, path) for choice in level.beside)) for level in study.tenancies
    )
    every = (*workloads, *(choice for level in tenancies for choice in level.beside))
    if not any((_FIELD, (path,)) in choice.levels for choice in every):
        raise StudyError(
            f"--python changes nothing: each workload of {study.study} names its interpreter itself, or cannot have "
            "one of its own (of a command it is the first word)."
        )
    made = study.model_copy(update={"workloads": workloads, "tenancies": tenancies})
    vars(made).pop("factors", None)  # those of the study before, if someone has asked for them
    return made


def begun_with(stored: Mapping[str, Json], study: Study) -> str | None:
    """The interpreter that a store was begun with, where it is all that tells its workloads from the study's."""
    if _workloads(study.as_plain()) == _workloads(stored):
        return None
    candidates = dict.fromkeys(_named(_workloads(stored)))
    return next((path for path in candidates if _made_with(study, path) == _workloads(stored)), None)


def _with(choice: PartChoice, path: str) -> PartChoice:
    said = any(key == _FIELD for key, _ in choice.levels)
    if said or _FIELD not in choice.part.model_fields:
        return choice
    return replace(choice, levels=(*choice.levels, (_FIELD, (path,))))


def _made_with(study: Study, path: str) -> list[Json]:
    try:
        return _workloads(with_python(study, path).as_plain())
    except StudyError:  # no workload of it takes one
        return []


def _workloads(plain: Mapping[str, Json]) -> list[Json]:
    """What of a study says which programs run."""
    return [plain.get("workload"), plain.get("tenants")]


def _named(plain: Json) -> Iterator[str]:
    """Every interpreter that is named somewhere in plain data."""
    if isinstance(plain, list):
        for item in plain:
            yield from _named(item)
    elif isinstance(plain, dict):
        for key, value in plain.items():
            yield from [value] if key == _FIELD and isinstance(value, str) else _named(value)
