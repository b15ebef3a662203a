"""What the type of a part's field says about the values that a study may write for it.

Making a part from what a study says, with types taken at their word: `true` is no number, and '16' is text.

pydantic's strict mode says so, but it also refuses what a field's own validator has already turned into a plain
list or a text; there the lax answer counts.

The parts that a study names, with the levels of their fields. No part is known by name here.
"""

from __future__ import annotations

import collections.abc
import itertools
import json
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from tare.base.errors import StudyError
from tare.base.units import PositiveSeconds, Seconds, SizeBytes
from tare.parts import find as parts
from tare.parts.find import Kind
from tare.parts.protocols import Json, Part
from tare.studies.yaml import Complaint, Loc, listed, nearest, show, suggestion

_LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Set)
_ANYTHING = (Any, object)
# A quantity is known by its validator: the very object that stands in the type's annotation.
_UNITS = {
    id(get_args(quantity)[1]): example
    for quantity, example in ((Seconds, "10 s"), (PositiveSeconds, "10 s"), (SizeBytes, "2 GiB"))
}


def list_depth(value: Any) -> int:
    """How many lists a value is wrapped in: 0 for 16, 1 for [16, 64], 2 for [[0], [0, 1]]."""
    if not isinstance(value, list):
        return 0
    return 1 + max((list_depth(item) for item in value), default=0)


def levels_of(field: FieldInfo | None, value: Any) -> tuple[list[Any], bool]:
    """The levels that a study wrote for a field, and whether it wrote a list of them."""
    room = math.inf if field is None else _room(field.annotation)
    if list_depth(value) > room:
        return value, True
    return [value], False


def unit_example(field: FieldInfo | None) -> str | None:
    """How a value of this field is written, where a number without a unit would be a guess."""
    if field is None:
        return None
    return _unit(field.annotation, field.metadata)


def _room(annotation: Any) -> float:
    """How many lists deep the values of a type are: more lists than that are levels of a factor."""
    if annotation in _ANYTHING:
        return math.inf
    if hasattr(annotation, "__value__"):  # `type X = ...`, which Python 3.11 has no class for
        return _room(annotation.__value__)
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _room(inside[0])
    if origin in (Union, types.UnionType):
        return max(_room(one) for one in inside)
    if (origin or annotation) in _LISTS:
        return 1 + max((_room(one) for one in inside if one is not ...), default=math.inf)
    return 0


def _unit(annotation: Any, metadata: Any = ()) -> str | None:
    for validator in metadata:
        if id(validator) in _UNITS:
            return _UNITS[id(validator)]
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _unit(inside[0], inside[1:])
    if origin in (Union, types.UnionType):
        units = [_unit(one) for one in inside if one is not type(None)]
        return units[0] if units and all(units) else None
    return None


_OURS = "study"  # the type of the errors that carry a complaint of our own

_MUST_BE = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    "int_parsing_size": "a smaller whole number",
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("string_type", "string_sub_type"), "text"),
    "path_type": "a path",
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "a list"),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "model_attributes_type"), "a mapping, like {{key: value}}"
    ),
    "none_required": "left out",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    **dict.fromkeys(("literal_error", "enum"), "{expected}"),
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
        text += f"{suggestion(str(loc[-1]), keys)}\n{'Fields' if whole else 'Keys'}: {listed(keys)}."
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
            reported = str(detail["ctx"]["error"]) if "error" in detail.get("ctx", {}) else detail["msg"]
            text = f"{name}{' ' if reported.startswith('must ') else ': '}{reported}" if name else reported
            return text if text.endswith((".", "?")) else f"{text}."
    wanted = " or ".join(dict.fromkeys(_phrase(detail) for detail in details))
    return f"{name} must be {wanted}, not {{given}}.{_hint(details, given)}"


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
        else f"no '{loc[-1]}:' here, and every study needs it."
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


_WORDS_MATTER = frozenset({"int_type", "int_from_float", "float_type", "bool_type", "string_type"})

_MAKING_LISTS = frozenset({"tuple_type", "list_type", "set_type", "frozen_set_type"})


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
    made: Part | None = None
    lax: list[ErrorDetails] = []
    try:
        made = part.model_validate(dict(fields))
    except ValidationError as error:
        lax = error.errors(include_url=False)
    real = {detail["loc"][:1] for detail in strict if detail["type"] in _WORDS_MATTER}
    real |= {detail["loc"][:1] for detail in lax}
    # A list that is told to be none only lacks its final form: what is wrong with it, lax knows.
    lists = [detail for detail in strict if detail["type"] in _MAKING_LISTS and isinstance(detail["input"], list)]
    misread = {detail["loc"][:1] for detail in lists}
    found = [detail for detail in strict if detail["loc"][:1] in real - misread]
    found += [detail for detail in lax if detail["loc"][:1] in misread]
    return (None, found) if found else (made, lax)


def in_records(part: Part, field: str, value: Json) -> list[Json]:
    """`value` as the part's records would have it ('2 GiB' is 2147483648); empty if the field cannot hold it."""
    made, _ = tried(type(part), part.fields() | {field: value})
    return [] if made is None else [made.fields()[field]]


def complaint_text(complaint: Complaint, data: Any) -> str:
    """A complaint about data that no file holds."""
    return complaint.text.replace("{given}", repr(nearest(data, complaint.loc)))


@dataclass(frozen=True)
class PartChoice:
    """A part that the study names, and the levels of each field that it sets, as plain data."""

    kind: Kind
    name: str
    levels: tuple[tuple[str, tuple[Json, ...]], ...] = ()

    def __hash__(self) -> int:
        return hash((self.kind, self.name, json.dumps(self.levels)))

    @property
    def part(self) -> type[Part]:
        return part_class(self.kind, self.name)

    def count(self) -> int:
        """How many parts it stands for; known without making any."""
        return math.prod(len(levels) for _, levels in self.levels)

    def parts(self) -> Iterator[Part]:
        """Every part that it stands for, in the order of the file."""
        keys = [key for key, _ in self.levels]
        for values in itertools.product(*(levels for _, levels in self.levels)):
            yield make(self.part, self.name, dict(zip(keys, values, strict=True)))

    @cached_property
    def samples(self) -> tuple[Part, ...]:
        """Few parts, and each level of each field in at least one of them."""
        return tuple(make(self.part, self.name, fields) for fields in self.diagonal())

    def diagonal(self) -> Iterator[dict[str, Json]]:
        """The fields of the samples: all first levels, all second levels, and so on."""
        for turn in range(max((len(levels) for _, levels in self.levels), default=1)):
            yield {key: levels[min(turn, len(levels) - 1)] for key, levels in self.levels}

    def covers(self, part: Part) -> bool:
        """Whether `part` is this part, with one of these levels in each field that is set here."""
        if type(part) is not self.part:
            return False
        fields = part.fields()
        return all(any(fields[key] in in_records(part, key, level) for level in levels) for key, levels in self.levels)

    @property
    def hides(self) -> bool:
        """Whether a level holds a secret, so that the study's own text must not be kept as it was written."""
        return any(part.fields() != part.model_dump(mode="json") for part in self.samples)

    def body(self) -> dict[str, Json]:
        """The fields as a study file has them, but for secrets: they are masked, as in records.

        A study that is read back from this is equal to the first one except where there was a secret.
        """
        shown = {key: [self.part.masked({key: level})[key] for level in levels] for key, levels in self.levels}
        return {key: levels[0] if len(levels) == 1 else levels for key, levels in shown.items()}

    def plain(self) -> Json:
        """Itself as a study file has it: `docker`, or `{docker: {cpus: [1, 2]}}`."""
        return {self.name: self.body()} if self.levels else self.name


def part_class(kind: Kind, name: str) -> type[Part]:
    """The class of a part; whatever keeps it from loading is said as a `StudyError`."""
    try:
        found: type[Part] = _asked_once(parts.find, kind, name)
    except ImportError as missing:
        raise StudyError(f"the {kind[:-1]} {name!r} cannot be used here: {missing}.") from missing
    return found


def part_names(kind: Kind) -> list[str]:
    """The parts of a kind that can be named here."""
    found: list[str] = _asked_once(parts.names, kind)
    return found


# Keyed by the function itself, so that a test which replaces it gets its own answers. Asking for the names walks
# every installed distribution, and a bad file may ask thousands of times.
@lru_cache(maxsize=320)
def _asked_once(ask: Callable[..., Any], *about: str) -> Any:
    return ask(*about)
