"""What the YAML scanner says, in words for the person who wrote the file."""

from __future__ import annotations

import re
from typing import NamedTuple

from ruamel.yaml.error import MarkedYAMLError

from tare.study.source import Problem


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
    said = " ".join(str(part) for part in (error.context, error.problem) if part)
    words = next((one for one in _WORDS if re.search(one.pattern, said)), _Words("", f"this is not YAML: {said}"))
    mark = error.problem_mark or error.context_mark
    if words.at_start and error.context_mark is not None:
        mark = error.context_mark
    line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
    return Problem(line, column, f"{words.text} (column {column}).")
