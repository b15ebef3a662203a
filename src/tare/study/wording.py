"""What pydantic says, in words for the person who wrote the study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from tare.study.source import Complaint, Loc, listed, show, suggestion

_OURS = "study"  # the type of the errors that carry a complaint of our own

_MUST_BE = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_sub_type": "text",
    "path_type": "a path",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "iterable_type": "a list",
    "dict_type": "a mapping, like {{key: value}}",
    "mapping_type": "a mapping, like {{key: value}}",
    "model_type": "a mapping, like {{key: value}}",
    "model_attributes_type": "a mapping, like {{key: value}}",
    "none_required": "left out",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "at most {max_length} characters long",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "string_pattern_mismatch": "text of the form {pattern}",
}
_SENTENCES = ("value_error", "assertion_error")  # the validator's own words
_YES = {"yes": "true", "y": "true", "on": "true", "no": "false", "n": "false", "off": "false"}


def explain(
    errors: Iterable[ErrorDetails], data: Any, *, of: str, known: Mapping[Loc, Sequence[str]]
) -> list[Complaint]:
    """One complaint for each value that is wrong. `of` names the whole; `known` the keys that each mapping takes."""
    groups: dict[Loc, list[ErrorDetails]] = {}
    own: list[Complaint] = []
    for detail in errors:
        if detail["type"] == _OURS:
            own.append(Complaint(detail["loc"], detail["ctx"]["text"], detail["ctx"]["of_key"]))
        elif detail["type"] == "missing":
            own.append(Complaint(detail["loc"], _missing(detail["loc"], of), of_key=True))
        elif detail["type"] == "extra_forbidden":
            whole = name_of(detail["loc"][:-1], of)
            own.append(unknown_field(detail["loc"], whole, known.get(detail["loc"][:-1], ())))
        else:
            groups.setdefault(_existing(detail["loc"], data), []).append(detail)
    return own + [Complaint(loc, _sentence(loc, details, of)) for loc, details in groups.items()]


def as_validation_error(title: str, complaints: Iterable[Complaint]) -> ValidationError:
    """Our complaints in the one form that pydantic carries up with their places."""
    return ValidationError.from_exception_data(
        title,
        [
            InitErrorDetails(
                type=PydanticCustomError(_OURS, "{text}", {"text": complaint.text, "of_key": complaint.of_key}),
                loc=complaint.loc,
                input=None,
            )
            for complaint in complaints
        ],
    )


def unknown_field(loc: Loc, whole: str, keys: Sequence[str]) -> Complaint:
    """A key that `whole` does not have; nothing as the whole is the study itself."""
    key = show(loc[-1])
    text = f"{whole} has no field {key}." if whole else f"a study has no key {key}."
    if keys:
        text += f"\n{'Fields' if whole else 'Keys'}: {listed(keys)}." + suggestion(str(loc[-1]), keys)
    return Complaint(loc, text, of_key=True)


def name_of(loc: Loc, of: str) -> str:
    """`torch_train.batch`, `command.argv[2]`."""
    text = of
    for step in loc:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _sentence(loc: Loc, details: Sequence[ErrorDetails], of: str) -> str:
    """What one value must be; a union complains once for each of its members."""
    name, given = name_of(loc, of), details[0]["input"]
    for detail in details:
        if detail["type"] in _SENTENCES:
            said = str(detail["ctx"]["error"]) if "error" in detail.get("ctx", {}) else detail["msg"]
            return _full_stop(f"{name}{' ' if said.startswith('must ') else ': '}{said}" if name else said)
    wanted = " or ".join(dict.fromkeys(_phrase(detail) for detail in details))
    return f"{name} must be {wanted}, not {{given}}.{_hint(details, given)}"


def _full_stop(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def _phrase(detail: ErrorDetails) -> str:
    template = _MUST_BE.get(detail["type"])
    if template is None:
        return detail["msg"].removeprefix("Input should be ").rstrip(".")
    limits = {key: f"{value:g}" if isinstance(value, float) else value for key, value in detail.get("ctx", {}).items()}
    return template.format(**limits)


def _hint(details: Sequence[ErrorDetails], given: Any) -> str:
    """The one thing that most likely helps."""
    types = {detail["type"] for detail in details}
    if types & {"string_type", "path_type"} and isinstance(given, int | float):
        return "\nPut it in quotes to make it text."
    if types & {"bool_type", "bool_parsing"} and str(given).lower() in _YES:
        return f"\nIn YAML 1.2 that is text; write {_YES[str(given).lower()]}."
    if types & {"int_type", "int_from_float"} and isinstance(given, float) and given.is_integer():
        return f"\nWrite {int(given)}."
    expected = [detail["ctx"]["expected"] for detail in details if detail["type"] in ("literal_error", "enum")]
    words = [word.strip("'") for text in expected for word in text.replace(" or ", ", ").split(", ")]
    return suggestion(str(given), words) if isinstance(given, str) else ""


def _missing(loc: Loc, of: str) -> str:
    whole = name_of(loc[:-1], of)
    return (
        f"{whole} needs {loc[-1]!r}: it has no default."
        if whole
        else f"there is no '{loc[-1]}:' here, and every study needs it."
    )


def _existing(loc: Loc, data: Any) -> Loc:
    """`loc` without the names of union members, which pydantic mixes in."""
    found: list[str | int] = []
    for step in loc:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            continue
        found.append(step)
    return tuple(found)
