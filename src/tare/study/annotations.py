"""What the type of a part's field says about the values that a study may write for it."""

from __future__ import annotations

import collections.abc
import math
import types
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from tare.measures import PositiveSeconds, Seconds, SizeBytes

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
