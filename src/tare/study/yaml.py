"""From text to a tree of nodes that know where they stand: YAML 1.2, less what a study has no use for.

ruamel.yaml splits the text into events; what a scalar means and every limit is decided here, so nothing in a
file can name a Python object, grow without bound, or change its meaning behind the writer's back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml import events as ev
from ruamel.yaml.error import MarkedYAMLError, StringMark

from tare.study.source import Fatal, Node, Problem, show
from tare.study.syntax import plain_words

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
            told = f"there are more than {self._most_values:,} values up to here; nothing of this kind needs that."
            raise Fatal(Problem(line, 1, told))

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
            told = f"{show(text, quote=False)} starts with a zero: write {show(number, quote=False)} for the number,"
            self.problems.append(Problem(line, column, f"{told} or {show(text)} for the text (column {column})."))
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
        told = None
        if self._aliases > MAX_ALIASES:
            told = f"there are more than {MAX_ALIASES} aliases ('*name') up to here; write the values out."
        elif event.anchor not in self._anchors:
            told = f"'*{event.anchor}' refers to nothing above. Put a text that starts with '*' in quotes."
        elif node is None:
            told = f"'*{event.anchor}' stands inside what it refers to."
        elif depth + node.height > MAX_DEPTH + 1:
            told = f"this is nested more than {MAX_DEPTH} levels deep."
        line, column = _place(event.start_mark)
        if told is not None or node is None:
            raise Fatal(Problem(line, column, told or ""))
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
