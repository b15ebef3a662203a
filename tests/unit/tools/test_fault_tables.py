"""The tests that tests/faults.md and security.md name are there; what only `make deep` runs is said there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
_NAMED = re.compile(r"(?P<file>(?:\w+/)*test_\w+\.py)|(?P<end>\))|`(?P<word>[^`]+)`")
_ROW = re.compile(r"^\| ([A-Z]\d+p?)(?:[-,][^|]*)? \|", re.MULTILINE)


def rows(page: str) -> list[tuple[str, str]]:
    """The name of each row and what stands in its last column."""
    lines = [line for line in (TESTS / page).read_text().splitlines() if _ROW.match(line)]
    return [(line.split("|")[1].strip(), line.rstrip(" |").rpartition("|")[2]) for line in lines]


def mentions(text: str) -> list[tuple[str, str | None]]:
    """Each file that a row names, and each word in the parentheses behind it."""
    found: list[tuple[str, str | None]] = []
    at, folder = "", ""
    for each in _NAMED.finditer(text):
        if each["file"]:
            at = each["file"] if "/" in each["file"] else f"{folder}/{each['file']}"
            folder = at.rpartition("/")[0]
            found.append((at, None))
        elif each["end"]:
            at = ""
        elif at:
            found.append((at, each["word"]))
    return found


@cache
def source(file: str) -> str:
    return (TESTS / file).read_text()


@cache
def is_deep(file: str) -> dict[str, bool]:
    """Its tests, and whether `make deep` alone runs them."""
    tests = [each for each in ast.parse(source(file)).body if isinstance(each, ast.FunctionDef)]
    return {each.name: "pytest.mark.deep" in map(ast.unparse, each.decorator_list) for each in tests}


@pytest.mark.parametrize("page", ["faults.md", "security.md"])
def test_every_test_that_a_table_names_is_there(page: str):
    more = source("fuzz_targets.py")  # the kinds of damaged inputs
    assert len(rows(page)) >= 30
    named = [(row, file, word) for row, text in rows(page) for file, word in mentions(text)]
    missing = [each for each in named if not (TESTS / each[1]).exists()]
    missing += [each for each in named if each[2] and each not in missing and each[2] not in source(each[1]) + more]
    assert missing == []


def test_what_only_make_deep_runs_is_said_at_the_top():
    top = re.search(r"\*\*Deep only\*\*.*?\n\n(?!- )", (TESTS / "faults.md").read_text(), re.DOTALL)
    assert top
    said = set(re.findall(r"\b[A-Z]\d+p?\b", top[0]))
    deep = set()
    for row, text in rows("faults.md"):
        for file, word in mentions(text):
            tests = [alone for name, alone in is_deep(file).items() if word and word in name]
            deep |= {row} if tests and all(tests) else set()
    assert deep >= {"C7", "I6"}
    assert deep <= said, "of these rows a test is run by `make deep` alone"


def test_each_of_the_thirty_security_rules_has_a_test_or_a_reason():
    found = dict(rows("security.md"))
    assert list(found) == [f"S{number}" for number in range(1, 31)]
    assert [row for row, text in found.items() if ".py" not in text and ", because" not in text] == []
