"""What the tree of a study says: at which scale it is to be read, and which parts and tenants it names.

Everything that is wrong with the parts is collected, and told at its place.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tare.base.errors import StudyError
from tare.base.sides import Neighbours
from tare.parts.find import Kind
from tare.parts.protocols import Json, Part
from tare.studies.fields import (
    PartChoice,
    explain,
    levels_of,
    list_depth,
    part_class,
    part_names,
    tried,
    unit_example,
    unknown_field,
)
from tare.studies.yaml import Complaint, Fatal, Loc, Node, Problem, listed, show, suggestion

Stack = tuple[PartChoice, ...]

MAX_STACKS = 1_000
MAX_WORK = 200_000  # values that are looked at to try every level of one part once


class PartReader:
    """Reads parts of one kind. As a `pattern` a part need not be whole: it only names what to look for."""

    def __init__(self, kind: Kind, *, pattern: bool = False) -> None:
        self.kind = kind
        self.complaints: list[Complaint] = []
        self._pattern = pattern
        self._word = kind[:-1]

    def stacks(self, value: Json, loc: Loc = ()) -> tuple[Stack, ...]:
        """`docker`, or a list of levels in which a list is a stack, outermost first."""
        return tuple(itertools.chain.from_iterable(self._stack(item, at) for item, at in self._items(value, loc)))

    def choices(self, value: Json, loc: Loc = ()) -> tuple[PartChoice, ...]:
        """`torch_train`, `{torch_train: {...}}`, or a list of them."""
        return tuple(itertools.chain.from_iterable(self.level(item, at) for item, at in self._items(value, loc)))

    def named(self, value: Json) -> tuple[tuple[PartChoice, ...], ...]:
        """`{page_cache: cold, cpu: {...}}`: for each part its levels."""
        if not isinstance(value, dict):
            self._complain((), f"{self._word} must be a mapping, like {{NAME: VALUE}}, not {{given}}.{self._here()}")
            return ()
        return tuple(tuple(self.bodies(name, body, (name,))) for name, body in value.items())

    def level(self, value: Json, loc: Loc) -> list[PartChoice]:
        """One level: a name, or a mapping from a name to its fields."""
        if value is None or isinstance(value, str):
            return self.bodies("null" if value is None else value, None, loc)  # YAML reads the name null as nothing
        if not isinstance(value, dict) or not value:
            self._complain(loc, f"a {self._word} is a name or {{NAME: FIELDS}}, not {{given}}.{self._here()}")
            return []
        name, *others = value
        if others:
            self._complain((*loc, others[0]), self._crowded(name, others[0]), of_key=True)
            return []
        return self.bodies(name, value[name], (*loc, name))

    def bodies(self, name: str, body: Json, loc: Loc) -> list[PartChoice]:
        """The levels of a part whose name is known: each has its own fields."""
        part = self._class(name, loc)
        if part is None:
            return []
        several = isinstance(body, list) and any(isinstance(item, dict) for item in body)
        items = [(item, (*loc, index)) for index, item in enumerate(body)] if several else [(body, loc)]
        levels = [(level, at) for item, at in items for level in self._expanded(part, name, item, at)]
        found = [self._body(part, name, level, at) for level, at in levels]
        self.complaints = list(dict.fromkeys(self.complaints))  # what is wrong with several levels at one place
        return [choice for choice in found if choice is not None]

    def _expanded(self, part: type[Part], name: str, body: Json, loc: Loc) -> list[Json]:
        """The levels that a body stands for, where the part knows a shorter way to write several."""
        if not isinstance(body, dict):
            return [body]
        try:
            return list(part.expanded(body))
        except ValueError as error:
            self._complain(loc, f"{name}: {error}.")
            return []

    def _items(self, value: Json, loc: Loc) -> Iterator[tuple[Json, Loc]]:
        """The levels with their places; a value that is no list is the only one."""
        if not isinstance(value, list):
            yield value, loc
            return
        if not value:
            self._complain(loc, f"the list of {self.kind} is empty.{self._here()}")
        yield from ((item, (*loc, index)) for index, item in enumerate(value))

    def _stack(self, value: Json, loc: Loc) -> Iterator[Stack]:
        if not isinstance(value, list):
            yield from ((choice,) for choice in self.level(value, loc))
            return
        if not value:
            self._complain(loc, f"a stack names at least one {self._word}, outermost first.")
            return
        levels = []
        for index, item in enumerate(value):
            if isinstance(item, list):
                self._complain((*loc, index), f"a stack holds {self.kind}, not another stack.")
            else:
                levels.append(self.level(item, (*loc, index)))
        if math.prod(map(len, levels)) > MAX_STACKS:
            self._complain(loc, f"this stack stands for more than {MAX_STACKS:,} platforms. Take out levels.")
        else:
            yield from itertools.product(*levels)

    def _class(self, name: str, loc: Loc) -> type[Part] | None:
        here = part_names(self.kind)
        if name not in here:
            text = f"no {self._word} {show(name)}.{suggestion(name, here)}{self._here()}"
            self._complain(loc, text, of_key=bool(loc) and loc[-1] == name)
            return None
        try:
            return part_class(self.kind, name)
        except StudyError as error:
            self._complain(loc, str(error))
            return None

    def _body(self, part: type[Part], name: str, body: Json, loc: Loc) -> PartChoice | None:
        """One level of a part; a plain value fills the field that the part calls short."""
        if body is None or isinstance(body, dict):
            body = body or {}
            return self._fields(part, name, body, {field: (*loc, field) for field in body}, loc)
        if part.short is None:
            fields = list(part.model_fields)
            like = f", like {{{name}: {{{fields[0]}: ...}}}}" if fields else ", and it has none"
            self._complain(
                loc, f"{name} takes its fields as a mapping{like}, not {{given}}.\nFields: {listed(fields)}."
            )
            return None
        return self._fields(part, name, {part.short: body}, {part.short: loc}, loc)

    def _fields(
        self, part: type[Part], name: str, body: dict[str, Json], places: dict[str, Loc], loc: Loc
    ) -> PartChoice | None:
        """The choice, if every level of every field is right; `places` says where each field stands."""
        before = len(self.complaints)
        levels: list[tuple[str, tuple[Json, ...]]] = []
        factors: set[str] = set()
        for field, value in body.items():
            wrote, several = levels_of(part.model_fields.get(field), value)
            if field not in part.model_fields:
                self.complaints.append(unknown_field(places[field], name, list(part.model_fields)))
                continue
            levels.append((field, tuple(wrote)))
            if several:
                factors.add(field)
            if not wrote:
                self._complain(places[field], f"{name}.{field} is an empty list: it needs at least one level.")
        choice = PartChoice(self.kind, name, tuple(levels))
        if _work(choice) > MAX_WORK:
            self._complain(
                loc, f"{name} has so many levels of so long fields that trying them takes too long. Split it."
            )
        elif all(wrote for _, wrote in levels):
            # A misspelt field is often the one that would be missing.
            whole = not self._pattern and len(self.complaints) == before
            self._validate(part, choice, places, factors, loc, whole=whole)
        if len(self.complaints) == before and not self._pattern:
            self._refuse_duplicates(choice, places, factors)
        return choice if len(self.complaints) == before else None

    def _validate(
        self, part: type[Part], choice: PartChoice, places: dict[str, Loc], factors: set[str], loc: Loc, *, whole: bool
    ) -> None:
        """Try every level of every field once, each complaint at its own place in the file."""
        last = {field: len(levels) - 1 for field, levels in choice.levels}
        seen: set[tuple[Loc, str]] = set()
        for turn, fields in enumerate(choice.diagonal()):
            for complaint in _wrong(part, choice.name, fields, whole=whole):
                field, deeper = str(complaint.loc[0]) if complaint.loc else "", complaint.loc[1:]
                at = places.get(field, (*loc, *complaint.loc[:1]))
                where = (*at, min(turn, last[field]), *deeper) if field in factors else (*at, *deeper)
                if (where, complaint.text) not in seen:
                    seen.add((where, complaint.text))
                    self._complain(where, complaint.text, of_key=complaint.of_key)

    def _refuse_duplicates(self, choice: PartChoice, places: dict[str, Loc], factors: set[str]) -> None:
        """Two levels of one field that mean the same would be one cell, measured twice under one name."""
        seen: dict[tuple[str, str], Json] = {}
        samples = [part.fields() for part in choice.samples] if factors else []
        for field, levels in choice.levels:
            for turn in range(len(levels) if field in factors else 0):
                key = (field, json.dumps(samples[turn][field], sort_keys=True))
                if key in seen:
                    again = "given twice" if seen[key] == levels[turn] else f"the same level as {show(seen[key])}"
                    self._complain((*places[field], turn), f"{choice.name}.{field}: {{given}} is {again}.")
                seen.setdefault(key, levels[turn])

    def _crowded(self, name: str, other: str) -> str:
        """What to say about two keys where one part is named."""
        if name in part_names(self.kind) and other in part_class(self.kind, name).model_fields:
            return f"{other!r} is a field of {name}: indent it one step further, under '{name}:'."
        both = f"[{{{name}: ...}}, {{{other}: ...}}]"
        return (
            f"one {self._word} is named here, and {show(other)} is a second one.\nFor two levels write a list: {both}."
        )

    def _here(self) -> str:
        return f"\n{self.kind.capitalize()} here: {listed(part_names(self.kind))}."

    def _complain(self, loc: Loc, text: str, *, of_key: bool = False) -> None:
        self.complaints.append(Complaint(loc, text, of_key))


def _wrong(part: type[Part], name: str, fields: dict[str, Json], *, whole: bool) -> list[Complaint]:
    """What is wrong with these fields; unless the part is to be `whole`, none of them is missed."""
    found = list(_unwritable(part, name, fields))
    refused = {one.loc for one in found}
    kept = {field: value for field, value in fields.items() if (field,) not in refused}
    _, errors = tried(part, kept)
    missing = {detail["loc"] for detail in errors if detail["type"] == "missing"}
    reported = explain(errors, kept, of=name, known={(): list(part.model_fields)})
    return found + [one for one in reported if one.loc not in missing or (whole and one.loc not in refused)]


def _unwritable(part: type[Part], name: str, fields: dict[str, Json]) -> Iterator[Complaint]:
    """Values that a part's own type would take, and that a person should not have written."""
    for field, value in fields.items():
        if not _finite(value):
            yield Complaint((field,), f"{name}.{field} must be a finite number, not {{given}}.")
        example = unit_example(part.model_fields.get(field))
        if example and isinstance(value, int | float) and not isinstance(value, bool):
            yield Complaint((field,), f"{name}.{field}: {{given}} has no unit; write it like '{example}'.")


def _work(choice: PartChoice) -> int:
    turns = max((len(levels) for _, levels in choice.levels), default=1)
    return turns * sum(max(map(_count, levels), default=1) for _, levels in choice.levels)


def _count(value: Json) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count, inside))


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    inside = value.values() if isinstance(value, dict) else value if list_depth(value) else ()
    return all(_finite(item) for item in inside)


MOST_TENANTS = 64
_KEYS = ("beside", "platform")
_HOW = "a level of tenants is a number, or {beside: WORKLOAD} with a `platform` of its own if it has one, not {given}."


@dataclass(frozen=True)
class Tenancy:
    """One level: so many of the same, or the workload with these beside it (on their own platform, if one is named)."""

    count: int = 1
    beside: tuple[PartChoice, ...] = ()
    stack: Stack | None = None
    named_by: frozenset[str] = frozenset()  # `beside.batch`: another level of the same short name has this otherwise

    @property
    def label(self) -> Json:
        """The level as records have it: 4, `beside torch_infer`, `beside finetune in bare (cpu_shares 2)`."""
        if not self.beside:
            return self.count
        who, where = (
            tuple((each.name, self._telling(key, each.body())) for each in choices)
            for key, choices in self.choices().items()
        )
        return str(Neighbours(who, where))

    def _telling(self, key: str, fields: Mapping[str, Json]) -> str:
        return ", ".join(f"{name} {value}" for name, value in fields.items() if f"{key}.{name}" in self.named_by)

    def choices(self) -> dict[str, Sequence[PartChoice]]:
        """By the key that a study file has them under."""
        return dict(zip(_KEYS, (self.beside, self.stack or ()), strict=True))

    def plain(self) -> Json:
        """As a study file has it."""
        if not self.beside:
            return self.count
        body: dict[str, Json] = {"beside": [choice.plain() for choice in self.beside]}
        if self.stack is not None:
            body["platform"] = [choice.plain() for choice in self.stack]
        return body


ALONE = Tenancy()


def read_tenancies(value: Json) -> tuple[tuple[Tenancy, ...], list[Complaint]]:
    """Every level, and what is wrong with them."""
    items = value if isinstance(value, list) else [value]
    found: list[Tenancy] = []
    complaints: list[Complaint] = []
    if not items:
        complaints.append(Complaint((), "the list of tenants is empty; leave it away for one."))
    for index, item in enumerate(items):
        loc: Loc = (index,) if isinstance(value, list) else ()
        level, wrong = _level(item, loc)
        complaints += wrong
        if level is not None and level in found:
            complaints.append(Complaint(loc, "{given} is given twice as a level of tenants."))
        found += [] if level is None else [level]
    return tuple(replace(level, named_by=_differing(level, found)) for level in found), complaints


def _differing(level: Tenancy, among: list[Tenancy]) -> frozenset[str]:
    """Settings in which a level differs from others that are called the same."""
    same = [each.choices() for each in among if each.label == level.label]
    found = set()
    for key in _KEYS:
        for name in {name for each in same for choice in each[key] for name in choice.body()}:
            values = [[choice.body().get(name, ...) for choice in each[key]] for each in same]
            found |= {f"{key}.{name}"} if any(value != values[0] for value in values) else set()
    return frozenset(found)


def _level(value: Json, loc: Loc) -> tuple[Tenancy | None, list[Complaint]]:
    if type(value) is int:
        if 1 <= value <= MOST_TENANTS:
            return Tenancy(count=value), []
        return None, [Complaint(loc, f"tenants must be a whole number from 1 to {MOST_TENANTS}, not {{given}}.")]
    if not isinstance(value, dict) or "beside" not in value or set(value) - set(_KEYS):
        return None, [Complaint(loc, _HOW)]
    complaints: list[Complaint] = []
    workloads = PartReader("workloads")
    beside = workloads.choices(value["beside"], (*loc, "beside"))
    complaints += workloads.complaints
    stack, wrong = _stack(value.get("platform"), (*loc, "platform"))
    complaints += wrong
    for choice in (*beside, *(stack or ())):
        if choice.count() > 1:
            sentence = f"{choice.name} beside the workload is no factor: give each of its fields one value."
            complaints.append(Complaint(loc, sentence))
    if len(beside) >= MOST_TENANTS:
        complaints.append(Complaint(loc, f"at most {MOST_TENANTS - 1} workloads fit beside another."))
    return (None if complaints else Tenancy(len(beside) + 1, beside, stack)), complaints


def _stack(value: Json, loc: Loc) -> tuple[Stack | None, list[Complaint]]:
    if value is None:
        return None, []
    reader = PartReader("platforms")
    # Here a list is one stack: the platforms of a neighbour are no factor.
    stacks = reader.stacks([value] if isinstance(value, list) else value, loc)
    return (stacks[0] if len(stacks) == 1 else None), reader.complaints


# The same study in other sizes: the file is the whole, and `scales` says what a smaller one changes.
#
# A scale names keys of the study and what they are in it. `repeat: 1` replaces a whole key; `workload.epochs: 2` sets
# one field of every workload that has it, `workload.torch_train.epochs: 2` of one kind, `compare.margin: 10%` one entry
# of a mapping. All of it happens on the tree that was read, before anything is typed, so that a mistake is told at its
# line.

FULL = "full"  # the file as it is written
_NOT_CHANGED = ("study", "scales", "scale")  # a scale is a size of the study, not another one
_KINDS: dict[str, Kind] = {"platform": "platforms", "workload": "workloads"}
_Change: TypeAlias = Callable[[str, Node], Node]


def scale_names(root: Node) -> list[str]:
    """The scales of a study, from the smallest; none where it has one size only."""
    scales = _scales(root)
    return [] if scales is None or not isinstance(scales.value, dict) else [*scales.value, FULL]


def scaled(root: Node, scale: str | None) -> Node:
    """The tree of the study at this scale, which says which one it is; at none, the whole."""
    scales = _scales(root)
    if scales is None:
        if scale is None:
            return root
        text = f"this study has no scales, so that it cannot be run at the scale {show(scale)}. Leave --scale out."
        raise Fatal(Problem(root.line, root.column, text))
    _refuse_bad_scales(scales)
    known, requested = scale_names(root), scale or FULL
    if requested not in known:
        text = f"no scale {show(requested)} here.{suggestion(requested, known)}\nScales: {listed(known)}."
        raise Fatal(Problem(*root.keys["scales"], text))
    entries = {name: value for name, value in root.value.items() if name != "scales"}
    places = {name: place for name, place in root.keys.items() if name != "scales"}
    whole = replace(root, value=entries, keys=places, children=tuple(entries.values()))
    if requested == FULL:
        return _put(whole, "scale", Node(FULL, *root.keys["scales"], text=FULL), root.keys["scales"])
    chosen = scales.value[requested]
    for key, node in chosen.value.items():
        whole = _changed(whole, key, node, chosen.keys[key])
    return _put(whole, "scale", Node(requested, *scales.keys[requested], text=requested), scales.keys[requested])


def _scales(root: Node) -> Node | None:
    found: Node | None = root.value.get("scales") if isinstance(root.value, dict) else None
    return found


def _refuse_bad_scales(scales: Node) -> None:
    how = "like {smoke: {repeat: 1}}"
    if not isinstance(scales.value, dict) or not scales.value:
        raise Fatal(Problem(scales.line, scales.column, f"scales must be a mapping from a name to changes, {how}."))
    for name, changes in scales.value.items():
        if name == FULL:
            text = f"the file itself is the scale '{FULL}': take it out of `scales`."
            raise Fatal(Problem(*scales.keys[name], text))
        if not isinstance(changes.value, dict):
            text = f"the scale {show(name)} must be a mapping from keys of the study to what they are in it, {how}."
            raise Fatal(Problem(changes.line, changes.column, text))


def _changed(root: Node, key: str, node: Node, at: tuple[int, int]) -> Node:
    """The study with one change of a scale made to it."""
    first, _, rest = key.partition(".")
    if first in _NOT_CHANGED:
        raise Fatal(Problem(*at, f"a scale cannot change {show(first)}."))
    if not rest:
        return _put(root, key, node, at)
    held = root.value.get(first)
    if held is None:
        raise Fatal(Problem(*at, f"{show(key)} changes nothing: the study has no {show(first)}."))
    if first in _KINDS:
        made = _in_parts(_KINDS[first], held, rest, node, at)
    elif isinstance(held.value, dict):
        made = _put(held, rest, node, at)
    else:
        raise Fatal(Problem(*at, f"{show(key)} changes nothing: {show(first)} is no mapping here."))
    return _put(root, first, made, root.keys[first])


def _in_parts(kind: Kind, held: Node, path: str, node: Node, at: tuple[int, int]) -> Node:
    """Every part below `held` that is meant and has the field, with its new value."""
    only, _, field = path.rpartition(".")
    touched: list[str] = []

    def change(name: str, body: Node) -> Node:
        if (only and name != only) or field not in _fields(kind, name):
            return body
        touched.append(name)
        whole = Node({}, body.line, body.column) if body.value is None else body
        if not isinstance(whole.value, dict):
            short = f"the part is written in short form: write its fields out, then set {show(field)}."
            raise Fatal(Problem(*at, short))
        return _put(whole, field, node, at)

    made = _walk(held, change)
    if not touched:
        known = list(dict.fromkeys(key for name in _part_names(held) for key in _fields(kind, name)))
        text = f"{show(path)} changes nothing: no {kind[:-1]} here has such a field.\nFields: {listed(known)}."
        raise Fatal(Problem(*at, text + suggestion(field, known)))
    return made


def _walk(node: Node, change: _Change) -> Node:
    """The same levels, with `change` made to the fields of each part."""
    if isinstance(node.value, list):
        items = [_walk(item, change) for item in node.value]
        return replace(node, value=items, children=tuple(items))
    if isinstance(node.value, dict):
        entries = {name: _bodies(name, body, change) for name, body in node.value.items()}
        return replace(node, value=entries, children=tuple(entries.values()))
    name = str(node.text or node.value)
    body = change(name, Node(None, node.line, node.column))
    if body.value is None:
        return node
    entries = {name: body}
    return Node(entries, node.line, node.column, keys={name: (node.line, node.column)}, children=(body,))


def _bodies(name: str, body: Node, change: _Change) -> Node:
    """The fields of one part; a list of mappings holds several levels of it."""
    if isinstance(body.value, list) and any(isinstance(item.value, dict) for item in body.value):
        items = [change(name, item) for item in body.value]
        return replace(body, value=items, children=tuple(items))
    return change(name, body)


def _put(node: Node, key: str, value: Node, at: tuple[int, int]) -> Node:
    entries = {**node.value, key: value}
    return replace(node, value=entries, keys={**node.keys, key: at}, children=tuple(entries.values()))


def _part_names(node: Node) -> Iterator[str]:
    """The names of the parts below."""
    if isinstance(node.value, list):
        for item in node.value:
            yield from _part_names(item)
    elif isinstance(node.value, dict):
        yield from node.value
    else:
        yield str(node.text or node.value)


def _fields(kind: Kind, name: str) -> list[str]:
    """The fields of a part; of one that is not there none: the reader says so later."""
    try:
        return list(part_class(kind, name).model_fields) if name in part_names(kind) else []
    except StudyError:
        return []
