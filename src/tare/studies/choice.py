"""The parts that a study names, with the levels of their fields. No part is known by name here."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tare.base.errors import StudyError
from tare.parts import find as parts
from tare.parts.find import Kind
from tare.parts.protocols import Json, Part
from tare.studies.fields import in_records, make


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
    return _part_class(parts.find, kind, name)


def part_names(kind: Kind) -> list[str]:
    """The parts of a kind that can be named here."""
    return _part_names(parts.names, kind)


# Keyed by the function itself, so that a test which replaces it gets its own answers. Asking for the names walks
# every installed distribution, and a bad file may ask thousands of times.
@lru_cache(maxsize=256)
def _part_class(find: Callable[[Kind, str], type[Part]], kind: Kind, name: str) -> type[Part]:
    try:
        return find(kind, name)
    except ImportError as missing:
        raise StudyError(f"the {kind[:-1]} {name!r} cannot be used here: {missing}.") from missing


@lru_cache(maxsize=64)
def _part_names(names: Callable[[Kind], list[str]], kind: Kind) -> list[str]:
    return names(kind)
