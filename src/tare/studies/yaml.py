"""From text to a tree of nodes that know where they stand: YAML 1.2, less what a study has no use for.

ruamel.yaml splits the text into events; what a scalar means and every limit is decided here, so nothing in a
file can name a Python object, grow without bound, or change its meaning behind the writer's back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml import events as ev
from ruamel.yaml.error import MarkedYAMLError, StringMark

from tare.base.errors import StudyError, did_you_mean

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

    def __getitem__(self, step: str | int) -> Any:
        return self.value[step]

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
        return None if self.root is None else nearest(self.root, loc).line

    def problem(self, complaint: Complaint) -> Problem:
        """The complaint at its line, with the value as it was written."""
        if self.root is None:
            return Problem(0, 0, complaint.text)
        node = nearest(self.root, complaint.loc)
        line, column = _key_place(self.root, complaint.loc) if complaint.of_key else (node.line, node.column)
        is_scalar = not isinstance(node.value, str | list | dict)
        given = (show(node.text, quote=False) or "nothing") if is_scalar else show(node.plain())
        return Problem(line, column, complaint.text.replace("{given}", given))

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
    hint = did_you_mean(name, known) if len(name) <= MAX_SHOWN else ""
    return f"\n{hint}" if hint else ""


def listed(things: Sequence[Any], worded: Callable[[Any], str] = str, most: int = 30) -> str:
    """`a, b, c`, cut short where there are too many to read."""
    more = len(things) - most
    return ", ".join(worded(thing) for thing in things[:most]) + (f" and {more} more" if more > 0 else "")


def nearest(found: Any, loc: Loc) -> Any:
    """What lies at `loc` below a node or plain data, or the deepest on the way to it."""
    for step in loc:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            break
    return found


def _key_place(root: Node, loc: Loc) -> tuple[int, int]:
    """Where the last key of `loc` stands; a key that is not there stands where its mapping does."""
    place, node = (1, 1), root
    for step in loc:
        place = node.keys.get(str(step), place)
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            break
    return place


class _Words(NamedTuple):
    """The scanner's words, and ours; `at_start` where the mistake is at the beginning of what it could not finish."""

    pattern: str
    text: str
    at_start: bool = False


_WORDS = (
    _Words(r"'\\t' that cannot start", "there is a tab here; YAML is indented with spaces only"),
    _Words(
        r"mapping values are not allowed",
        "a ':' is not allowed here; indent this line like its neighbours, or put a text that holds ': ' in quotes",
    ),
    _Words(r"while scanning a (quoted|double-quoted|single-quoted) scalar", "this quote is never closed", True),
    _Words(r"while parsing a flow sequence", "this '[' is not closed, or a comma is missing inside", True),
    _Words(r"while parsing a flow mapping", "this '{' is not closed, or a comma is missing inside", True),
    _Words(r"while parsing a flow node", "a value is missing here, or a bracket is not closed"),
    _Words(r"could not find expected ':'", "this has no ':' after it; a line of a study is 'key: value'", True),
    _Words(r"expected <block end>", "this does not line up with the lines above; check the spaces before it"),
    _Words(r"while scanning (an alias|an anchor)", "'*' and '&' have a meaning in YAML; put this text in quotes"),
    _Words(r"'(@|`|%)' that cannot start", "a text cannot start with this character; put it in quotes"),
    _Words(r"(parsing|scanning) a(n)? .*tag|tag handle", "a text that starts with '!' must be in quotes"),
    _Words(r"while scanning a directive", "a line that starts with '%' is not part of a study"),
    _Words(r"block sequence entries are not allowed", "a '-' is not allowed here; a list starts on its own line"),
    _Words(r"unknown escape character", "a backslash in double quotes starts an escape; use single quotes"),
)


def plain_words(error: MarkedYAMLError) -> Problem:
    """The scanner's error as a problem with a line."""
    reported = " ".join(str(part) for part in (error.context, error.problem) if part)
    words = next(
        (one for one in _WORDS if re.search(one.pattern, reported)), _Words("", f"this is not YAML: {reported}")
    )
    mark = error.problem_mark or error.context_mark
    if words.at_start and error.context_mark is not None:
        mark = error.context_mark
    line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
    return Problem(line, column, f"{words.text} (column {column}).")


MAX_DEPTH = 32
MAX_NODES = 5_000  # keys and values, with aliases written out: half a second of reading on a small machine
MAX_ALIASES = 20
MAX_DIGITS = 300

Event: TypeAlias = Any  # ruamel's event classes carry no types of their own

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], int | float]], ...] = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
    (re.compile(r"\.(nan|NaN|NAN)"), lambda text: float("nan")),
)


class Parsed(NamedTuple):
    """The tree, and what is wrong with it that does not stop us from reading on."""

    root: Node
    problems: list[Problem]


def parse(text: str, most_values: int = MAX_NODES) -> Parsed:
    """The one document in `text`; raises `Fatal` where reading on makes no sense."""
    composer = _Composer(YAML(typ="safe", pure=True).parse(text), most_values)
    try:
        root = composer.document()
    except MarkedYAMLError as error:
        raise Fatal(plain_words(error)) from None
    except Fatal:
        raise
    except Exception as error:
        # The scanner meets hostile text here; whatever it trips over is the file's fault, not a crash of ours.
        raise Fatal(Problem(1, 1, f"this cannot be read as YAML ({type(error).__name__}: {error}).")) from None
    return Parsed(root, composer.problems)


class _Composer:
    """Builds the tree from events, counting as it goes."""

    def __init__(self, events: Iterator[Event], most_values: int = MAX_NODES) -> None:
        self._most_values = most_values
        self.problems: list[Problem] = []
        self._events = events
        self._anchors: dict[str, Node | None] = {}  # None: opened and not closed yet
        self._aliases = 0
        self._nodes = 0
        self._builders: dict[type, Callable[[Event, int], Node]] = {
            ev.ScalarEvent: self._scalar,
            ev.AliasEvent: self._alias,
            ev.SequenceStartEvent: self._sequence,
            ev.MappingStartEvent: self._mapping,
        }

    def document(self) -> Node:
        next(self._events)  # the start of the stream
        start = next(self._events)
        if isinstance(start, ev.StreamEndEvent):
            raise Fatal(Problem(1, 1, f"there is nothing in this file. {HOW_TO_BEGIN}"))
        self._refuse_directives(start)
        root = self._node(next(self._events), depth=1)
        next(self._events)  # the end of the document
        after = next(self._events)
        if not isinstance(after, ev.StreamEndEvent):
            where = _place(after.start_mark)
            raise Fatal(Problem(*where, "a second document ('---') starts here. One file is one study: split it."))
        return root

    def _refuse_directives(self, start: Event) -> None:
        version = getattr(start.version, "version", start.version)
        if start.tags or (version is not None and tuple(version) != (1, 2)):
            raise Fatal(Problem(*_place(start.start_mark), "a study is YAML 1.2: leave out the '%' lines at the top."))

    def _node(self, event: Event, depth: int) -> Node:
        line, column = _place(event.start_mark)
        if depth > MAX_DEPTH:
            raise Fatal(Problem(line, column, f"this is nested more than {MAX_DEPTH} levels deep (column {column})."))
        self._count(1, line)
        if getattr(event, "tag", None) is not None:
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            text = f"the tag {show(tag)} is not allowed: a study holds plain values only. Remove it."
            self.problems.append(Problem(line, column, text))
        anchor = None if isinstance(event, ev.AliasEvent) else event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        node = self._builders[type(event)](event, depth)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _count(self, nodes: int, line: int) -> None:
        self._nodes += nodes
        if self._nodes > self._most_values:
            reported = f"there are more than {self._most_values:,} values up to here; nothing of this kind needs that."
            raise Fatal(Problem(line, 1, reported))

    def _scalar(self, event: Event, depth: int) -> Node:
        line, column = _place(event.start_mark)
        text: str = event.value
        if "\0" in text or (not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)):
            self.problems.append(Problem(line, column, "this text holds a character that no program can be given."))
            text = ""
        quoted = event.style is not None
        return Node(text if quoted else self._resolved(text, line, column), line, column, text=text)

    def _resolved(self, text: str, line: int, column: int) -> Any:
        """What an unquoted scalar means in YAML 1.2: `no`, `on` and `1:30` are text."""
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if _LEADING_ZERO.fullmatch(text):
            # 10 to YAML 1.1, 12 to YAML 1.2: whichever we took, someone would be wrong.
            sign, digits = text.rstrip("0123456789"), text.lstrip("+-")
            number = f"{sign}{digits.lstrip('0') or '0'}"
            reported = (
                f"{show(text, quote=False)} starts with a zero: write {show(number, quote=False)} for the number,"
            )
            self.problems.append(Problem(line, column, f"{reported} or {show(text)} for the text (column {column})."))
            return text
        for pattern, number_of in _NUMBERS:
            if pattern.fullmatch(text):
                return self._number(text, number_of, line, column)
        return text

    def _number(self, text: str, number_of: Callable[[str], int | float], line: int, column: int) -> Any:
        if len(text) > MAX_DIGITS:
            self.problems.append(Problem(line, column, f"this number has {len(text):,} digits; no study needs that."))
            return text
        return number_of(text)

    def _alias(self, event: Event, depth: int) -> Node:
        self._aliases += 1
        node = self._anchors.get(event.anchor)
        reported = None
        if self._aliases > MAX_ALIASES:
            reported = f"there are more than {MAX_ALIASES} aliases ('*name') up to here; write the values out."
        elif event.anchor not in self._anchors:
            reported = f"'*{event.anchor}' refers to nothing above. Put a text that starts with '*' in quotes."
        elif node is None:
            reported = f"'*{event.anchor}' stands inside what it refers to."
        elif depth + node.height > MAX_DEPTH + 1:
            reported = f"this is nested more than {MAX_DEPTH} levels deep."
        line, column = _place(event.start_mark)
        if reported is not None or node is None:
            raise Fatal(Problem(line, column, reported or ""))
        self._count(node.size, line)
        return node

    def _sequence(self, event: Event, depth: int) -> Node:
        items: list[Node] = []
        while not isinstance(inner := next(self._events), ev.SequenceEndEvent):
            items.append(self._node(inner, depth + 1))
        return Node(items, *_place(event.start_mark), children=tuple(items))

    def _mapping(self, event: Event, depth: int) -> Node:
        entries: dict[str, Node] = {}
        keys: dict[str, tuple[int, int]] = {}
        while not isinstance(inner := next(self._events), ev.MappingEndEvent):
            key, where = self._key(inner), _place(inner.start_mark)
            value = self._node(next(self._events), depth + 1)
            if key in keys:
                text = f"the key {show(key)} is given twice: here and on line {keys[key][0]}. Keep one."
                self.problems.append(Problem(*where, text))
                continue
            keys[key], entries[key] = where, value
        return Node(entries, *_place(event.start_mark), keys=keys, children=tuple(entries.values()))

    def _key(self, event: Event) -> str:
        line, column = _place(event.start_mark)
        self._count(1, line)
        if not isinstance(event, ev.ScalarEvent):
            raise Fatal(Problem(line, column, f"a key is a plain word, like 'repeat:' (column {column})."))
        if event.value == "<<":
            raise Fatal(Problem(line, column, "'<<' (merge) is not part of YAML 1.2: write the keys out."))
        return str(event.value)


HOW_TO_BEGIN = "A study begins with a line such as 'study: my-question'."


def _place(mark: StringMark) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1
