"""The same study in other sizes: the file is the whole, and `scales` says what a smaller one changes.

A scale names keys of the study and what they are in it. `repeat: 1` replaces a whole key; `workload.epochs: 2` sets one
field of every workload that has it, `workload.torch_train.epochs: 2` of one kind, `compare.margin: 10%` one entry of a
mapping. All of it happens on the tree that was read, before anything is typed, so that a mistake is told at its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from tare.base.errors import StudyError
from tare.parts.find import Kind
from tare.studies.fields import part_class, part_names
from tare.studies.yaml import Fatal, Node, Problem, listed, show, suggestion

FULL = "full"  # the file as it is written
_NOT_CHANGED = ("study", "scales", "scale")  # a scale is a size of the study, not another one
_KINDS: dict[str, Kind] = {"platform": "platforms", "workload": "workloads"}
_Change: TypeAlias = Callable[[str, Node], Node]


def names(root: Node) -> list[str]:
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
    known, requested = names(root), scale or FULL
    if requested not in known:
        text = f"no scale {show(requested)} here.\nScales: {listed(known)}.{suggestion(requested, known)}"
        raise Fatal(Problem(*root.keys["scales"], text))
    whole = _without(root, "scales")
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
    made = _in_parts(_KINDS[first], held, rest, node, at) if first in _KINDS else _in_mapping(held, key, rest, node, at)
    return _put(root, first, made, root.keys[first])


def _in_mapping(held: Node, key: str, entry: str, node: Node, at: tuple[int, int]) -> Node:
    if not isinstance(held.value, dict):
        raise Fatal(Problem(*at, f"{show(key)} changes nothing: {show(key.partition('.')[0])} is no mapping here."))
    return _put(held, entry, node, at)


def _in_parts(kind: Kind, held: Node, path: str, node: Node, at: tuple[int, int]) -> Node:
    """Every part below `held` that is meant and has the field, with its new value."""
    only, _, field = path.rpartition(".")
    touched: list[str] = []

    def change(name: str, body: Node) -> Node:
        if (only and name != only) or not _has(kind, name, field):
            return body
        touched.append(name)
        return _with_field(body, field, node, at)

    made = _walk(held, change)
    if not touched:
        known = list(dict.fromkeys(key for name in _named(held) for key in _fields(kind, name)))
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


def _with_field(body: Node, field: str, node: Node, at: tuple[int, int]) -> Node:
    if body.value is None:
        body = Node({}, body.line, body.column)
    if not isinstance(body.value, dict):
        raise Fatal(Problem(*at, f"the part is written in short form: write its fields out, then set {show(field)}."))
    return _put(body, field, node, at)


def _put(node: Node, key: str, value: Node, at: tuple[int, int]) -> Node:
    entries = {**node.value, key: value}
    return replace(node, value=entries, keys={**node.keys, key: at}, children=tuple(entries.values()))


def _without(node: Node, key: str) -> Node:
    entries = {name: value for name, value in node.value.items() if name != key}
    keys = {name: place for name, place in node.keys.items() if name != key}
    return replace(node, value=entries, keys=keys, children=tuple(entries.values()))


def _named(node: Node) -> Iterator[str]:
    """The names of the parts below."""
    if isinstance(node.value, list):
        for item in node.value:
            yield from _named(item)
    elif isinstance(node.value, dict):
        yield from node.value
    else:
        yield str(node.text or node.value)


def _has(kind: Kind, name: str, field: str) -> bool:
    return field in _fields(kind, name)


def _fields(kind: Kind, name: str) -> list[str]:
    """The fields of a part; of one that is not there none: the reader says so later."""
    try:
        return list(part_class(kind, name).model_fields) if name in part_names(kind) else []
    except StudyError:
        return []
