"""From a file to a study. Whatever is wrong is said at once, each with its line; nothing in a file is ever run."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError

from tare.base.errors import StudyError, near_names
from tare.parts.find import Kind
from tare.parts.protocols import Json
from tare.studies.fields import PartChoice, complaint_text, explain, part_class, part_names
from tare.studies.model import Compare, Design, Order, Repeat, Study
from tare.studies.yaml import (
    HOW_TO_BEGIN,
    Complaint,
    Fatal,
    Loc,
    Node,
    Problem,
    Source,
    listed,
    parse,
    show,
    suggestion,
)

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


MAX_BYTES = 128 * 1024  # the scanner needs 5 s for the worst MiB, and no study that people read is longer

_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WIDE = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32"))


def read(path: Path, *, trust: bool, most_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of the file, checked and read through one descriptor so that nobody can swap it in between."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise StudyError(f"{path}: this file cannot be read: {_reason(error)}.{_near(path)}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StudyError(f"{path}: this is not a file. Give the path of a study, such as study.yaml.")
        if not trust:
            _refuse_foreign(path, status)
        found = bytearray()
        while len(found) <= most_bytes and (chunk := os.read(descriptor, most_bytes + 1)):
            found += chunk
        return bytes(found)
    except OSError as error:
        raise StudyError(f"{path}: this file cannot be read: {_reason(error)}.") from None
    finally:
        os.close(descriptor)


def decoded(text: str | bytes, most_bytes: int = MAX_BYTES) -> str:
    """The text, if it is text: UTF-8 with or without a byte order mark, any line ends."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(raw) > most_bytes:
        raise Fatal(Problem(1, 1, f"the file is too large: it may have at most {most_bytes:,} bytes."))
    for mark, encoding in _WIDE:
        if raw.startswith(mark):
            raise Fatal(Problem(1, 1, f"the file is in {encoding}. Save it as UTF-8."))
    try:
        found = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        reported = f"byte {raw[error.start]:#04x} is not UTF-8. Save the file as UTF-8."
        raise Fatal(Problem(line, 1, reported)) from None
    if control := _CONTROL.search(found):
        at = control.start()
        line, column = found.count("\n", 0, at) + 1, at - found.rfind("\n", 0, at)
        name = "a NUL byte" if found[at] == "\0" else f"the control character U+{ord(found[at]):04X}"
        raise Fatal(Problem(line, column, f"there is {name} in column {column}. Is this a text file, in UTF-8?"))
    return found


def _refuse_foreign(path: Path, status: os.stat_result) -> None:
    """Root does what the file says, so nobody else may have a hand in it (as for sudoers)."""
    if os.geteuid() != 0:
        return
    sudo_user = os.environ.get("SUDO_UID", "")
    ours = {0, int(sudo_user) if sudo_user.isdecimal() else 0}
    if status.st_uid not in ours:
        who = f"it belongs to user {status.st_uid}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        who = "others can write to it"
    else:
        return
    raise StudyError(
        f"{path}:1: tare runs as root and does what this file says, but {who}.\n"
        f"  Read it, then `chown root {path}` and `chmod go-w {path}`; or pass --trust."
    )


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _near(path: Path) -> str:
    """The file in the same folder that was probably meant."""
    try:
        here = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except (OSError, ValueError):
        return ""
    near = near_names(path.name, here)
    return f"\n  Did you mean {str(path.with_name(near[0]))!r}?" if near else ""


_NESTED: dict[str, type[BaseModel]] = {"repeat": Repeat, "order": Order, "design": Design, "compare": Compare}


def load(path: Path | str, *, trust: bool = False, scale: str | None = None) -> Study:
    """The study in a file. As root, a file that others can write is refused unless it is trusted."""
    return loads(read(Path(path), trust=trust), str(path), scale=scale)


def loads(text: str | bytes, name: str = "study", *, scale: str | None = None) -> Study:
    """The study in a text, at one of its scales; `name` stands for the file in messages."""
    root, problems = _tree(text, name)
    return _at_scale(root, problems, name, scale)


def at_every_scale(path: Path | str, *, trust: bool = False) -> dict[str, Study]:
    """The study in a file at each of its scales, from the smallest; with none of them, alone under an empty name."""
    root, problems = _tree(read(Path(path), trust=trust), str(path))
    known: list[str | None] = [*names(root)] or [None]
    return {scale or "": _at_scale(root, problems, str(path), scale) for scale in known}


def _tree(text: str | bytes, name: str) -> tuple[Node, list[Problem]]:
    """The tree of a study file, and what is wrong with it that does not keep us from reading on."""
    try:
        root, problems = parse(decoded(text))
    except Fatal as fatal:
        raise Source(name).error([fatal.problem]) from None
    if not isinstance(root.value, dict):
        what = "a list" if isinstance(root.value, list) else "a single value"
        reported = f"a study is made of 'key: value' lines, and this is {what}. {HOW_TO_BEGIN}"
        raise Source(name, root).error([Problem(root.line, root.column, reported)])
    return root, problems


def _at_scale(root: Node, problems: list[Problem], name: str, scale: str | None) -> Study:
    try:
        return _typed(scaled(root, scale), name, list(problems))
    except Fatal as fatal:
        raise Source(name, root).error([*problems, fatal.problem]) from None


def _typed(root: Node, name: str, problems: list[Problem]) -> Study:
    """The study in a tree, or everything that is wrong with it."""
    source, data = Source(name, root), root.plain()
    problems += _blanks(root)
    blank = [key for key, node in root.value.items() if node.value is None and not node.text]
    try:
        study = Study.model_validate({key: value for key, value in data.items() if key not in blank})
    except ValidationError as error:
        taken = {problem[:2] for problem in problems}  # what is not even YAML needs no second complaint
        found = [source.problem(one) for one in _complaints(error, data)]
        problems += [problem for problem in found if problem[:2] not in taken]
    if problems:
        raise source.error(problems)
    return study.from_source(source)


def from_plain(data: Mapping[str, Any], name: str = "") -> Study:
    """A study from the same keys, made by a program; what is wrong is said as for a file, without lines."""
    try:
        return Study.model_validate(dict(data)).from_source(Source(name))
    except ValidationError as error:
        texts = [complaint_text(one, data) for one in _complaints(error, dict(data))]
        raise Source(name).error([Problem(0, 0, text) for text in texts]) from None


def _complaints(error: ValidationError, data: dict[str, Any]) -> list[Complaint]:
    known: dict[Loc, Sequence[str]] = {(): [*keys(), "scales"]}
    known |= {(key,): keys(model) for key, model in _NESTED.items()}
    return explain(error.errors(include_url=False), data, of="", known=known)


def keys(of: type[BaseModel] = Study) -> list[str]:
    """The keys of a study file, or of one of its mappings, in their usual order."""
    return [field.alias or name for name, field in of.model_fields.items()]


def _blanks(root: Node) -> list[Problem]:
    """Keys of the study, and items of any list, after which nothing was written."""
    found = [
        Problem(*root.keys[key], f"{show(key + ':')} has no value. Give it one, or take the line out.")
        for key, node in root.value.items()
        if node.value is None and not node.text
    ]
    rows = [root]
    while rows:
        node = rows.pop()
        rows += node.children
        if isinstance(node.value, list):
            blank = [item for item in node.value if item.value is None and not item.text]
            found += [Problem(item.line, item.column, "this item of the list is empty.") for item in blank]
    return found


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
    for path in dict.fromkeys(_named(_workloads(stored))):
        with suppress(StudyError):  # no workload of it takes one
            if _workloads(with_python(study, path).as_plain()) == _workloads(stored):
                return path
    return None


def _with(choice: PartChoice, path: str) -> PartChoice:
    if any(key == _FIELD for key, _ in choice.levels) or _FIELD not in choice.part.model_fields:
        return choice
    return replace(choice, levels=(*choice.levels, (_FIELD, (path,))))


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
