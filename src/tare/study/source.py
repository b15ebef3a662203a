"""Where things stand in a study file, and how we say what is wrong there."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tare.errors import StudyError

Loc: TypeAlias = tuple[str | int, ...]  # the way to a value: ("workload", "torch_train", "batch", 1)

MAX_SHOWN = 60
MAX_PROBLEMS = 20


class Problem(NamedTuple):
    """One thing that is wrong, and where."""

    line: int
    column: int
    text: str


class Complaint(NamedTuple):
    """One thing that is wrong with a value; `{given}` in the text stands for the value as it was written."""

    loc: Loc
    text: str
    of_key: bool = False  # the key is wrong, not what it holds


class Fatal(Exception):
    """A problem that makes reading on pointless."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.text)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file: a scalar, a list of nodes, or a dict of them."""

    value: Any
    line: int
    column: int
    text: str = ""  # a scalar as it was written
    keys: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # where each key of a dict stands
    children: tuple[Node, ...] = ()
    size: int = 1  # nodes below and including this one, aliases written out
    height: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + len(self.keys) + sum(child.size for child in self.children))
        object.__setattr__(self, "height", 1 + max((child.height for child in self.children), default=0))

    def plain(self) -> Any:
        """The value as plain data."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


@dataclass(frozen=True)
class Source:
    """Where a study came from. It is no part of what the study says: all sources are equal."""

    name: str = field(default="", compare=False)
    root: Node | None = field(default=None, compare=False)

    def at(self, *loc: str | int) -> str:
        """`study.yaml:5: `, for the start of a message; the name alone, or nothing, where there are no lines."""
        if self.root is None:
            return f"{self.name}: " if self.name else ""
        return f"{self.name}:{self.line(*loc)}: "

    def line(self, *loc: str | int) -> int | None:
        """The line of the value at `loc`; None for a study that was not read from text."""
        return None if self.root is None else _nearest(self.root, loc).line

    def problem(self, complaint: Complaint) -> Problem:
        """The complaint at its line, with the value as it was written."""
        if self.root is None:
            return Problem(0, 0, complaint.text)
        node = _nearest(self.root, complaint.loc)
        line, column = _key_place(self.root, complaint.loc) if complaint.of_key else (node.line, node.column)
        return Problem(line, column, complaint.text.replace("{given}", _as_written(node)))

    def error(self, problems: Iterable[Problem]) -> StudyError:
        """Everything that is wrong, by line, as one error."""
        found = sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column))
        lines = [self._line(problem) for problem in found[:MAX_PROBLEMS]]
        if len(found) > MAX_PROBLEMS:
            lines.append(f"{self.name}: and {len(found) - MAX_PROBLEMS} more like these.")
        return StudyError("\n".join(lines))

    def _line(self, problem: Problem) -> str:
        where = f"{self.name}:{problem.line}: " if problem.line else self.at()
        return where + problem.text.replace("\n", "\n  ")


def show(value: Any, *, quote: bool = True) -> str:
    """A value in a message: on one line, short, and without characters that a terminal acts on."""
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, default=str)
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    short = value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]}..."
    return repr(short) if quote else repr(short)[1:-1]


def suggestion(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'batch'?` on a line of its own, or nothing."""
    known = list(known)
    if len(name) > MAX_SHOWN:
        return ""
    close = difflib.get_close_matches(name, known, n=1) or [key for key in known if key.endswith(f".{name}")][:1]
    return f"\nDid you mean {close[0]!r}?" if close else ""


def listed(things: Sequence[Any], worded: Callable[[Any], str] = str, most: int = 30) -> str:
    """`a, b, c`, cut short where there are too many to read."""
    more = len(things) - most
    return ", ".join(worded(thing) for thing in things[:most]) + (f" and {more} more" if more > 0 else "")


def _nearest(root: Node, loc: Loc) -> Node:
    """The node at `loc`, or the deepest one on the way to it."""
    node = root
    for step in loc:
        try:
            node = node.value[step]
        except (KeyError, IndexError, TypeError):
            break
    return node


def _key_place(root: Node, loc: Loc) -> tuple[int, int]:
    """Where the last key of `loc` stands; a key that is not there stands where its mapping does."""
    place, node = (1, 1), root
    for step in loc:
        place = node.keys.get(str(step), place)
        try:
            node = node.value[step]
        except (KeyError, IndexError, TypeError):
            break
    return place


def _as_written(node: Node) -> str:
    scalar = not isinstance(node.value, str | list | dict)
    return (show(node.text, quote=False) or "nothing") if scalar else show(node.plain())
