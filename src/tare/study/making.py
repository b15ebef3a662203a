"""Making a part from what a study says, with types taken at their word: `true` is no number, and '16' is text.

pydantic's strict mode says so, but it also refuses what a field's own validator has already turned into a plain
list or a text; there the lax answer counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tare.errors import StudyError
from tare.parts.protocols import Json, Part
from tare.study.source import Complaint
from tare.study.wording import explain

_WORDS_MATTER = frozenset({"int_type", "int_from_float", "float_type", "bool_type", "string_type"})

_LISTS = frozenset({"tuple_type", "list_type", "set_type", "frozen_set_type"})


def make(part: type[Part], name: str, fields: Mapping[str, Json]) -> Part:
    """The part with these fields; what is wrong with them is said as a `StudyError`."""
    made, errors = tried(part, fields)
    if made is not None:
        return made
    complaints = explain(errors, fields, of=name, known={(): list(part.model_fields)})
    raise StudyError("\n".join(complaint_text(one, fields) for one in complaints))


def tried(part: type[Part], fields: Mapping[str, Json]) -> tuple[Part | None, list[ErrorDetails]]:
    """The part, or everything that is wrong with its fields."""
    try:
        return part.model_validate_json(json.dumps(fields), strict=True), []
    except ValidationError as error:
        strict = error.errors(include_url=False)
    made, lax = _lax(part, fields)
    real = {detail["loc"][:1] for detail in strict if detail["type"] in _WORDS_MATTER}
    real |= {detail["loc"][:1] for detail in lax}
    # A list that is told to be none only lacks its final form: what is wrong with it, lax knows.
    misread = {detail["loc"][:1] for detail in strict if _is_a_list_all_the_same(detail)}
    found = [detail for detail in strict if detail["loc"][:1] in real - misread]
    found += [detail for detail in lax if detail["loc"][:1] in misread]
    if found:
        return None, found
    return made, lax


def _is_a_list_all_the_same(detail: ErrorDetails) -> bool:
    return detail["type"] in _LISTS and isinstance(detail["input"], list)


def in_records(part: Part, field: str, value: Json) -> list[Json]:
    """`value` as the part's records would have it ('2 GiB' is 2147483648); empty if the field cannot hold it."""
    made, _ = tried(type(part), part.fields() | {field: value})
    return [] if made is None else [made.fields()[field]]


def complaint_text(complaint: Complaint, data: Any) -> str:
    """A complaint about data that no file holds."""
    for step in complaint.loc:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            break
    return complaint.text.replace("{given}", repr(data))


def _lax(part: type[Part], fields: Mapping[str, Json]) -> tuple[Part | None, list[ErrorDetails]]:
    try:
        return part.model_validate(dict(fields)), []
    except ValidationError as error:
        return None, error.errors(include_url=False)
