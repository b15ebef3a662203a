"""From a file to a study. Whatever is wrong is said at once, each with its line; nothing in a file is ever run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tare.study.design import Compare, Order, Repeat
from tare.study.file import decoded, read
from tare.study.making import complaint_text
from tare.study.model import Study
from tare.study.scales import names, scaled
from tare.study.source import Complaint, Fatal, Loc, Node, Problem, Source, show
from tare.study.wording import explain
from tare.study.yaml import HOW_TO_BEGIN, parse

_NESTED: dict[str, type[BaseModel]] = {"repeat": Repeat, "order": Order, "compare": Compare}


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
        said = f"a study is made of 'key: value' lines, and this is {what}. {HOW_TO_BEGIN}"
        raise Source(name, root).error([Problem(root.line, root.column, said)])
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
