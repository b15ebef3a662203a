"""What an unquoted word means, and where everything stands."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tare.studies.yaml import MAX_ALIASES, MAX_DEPTH, MAX_DIGITS, MAX_NODES, Fatal, parse


def plain(text: str) -> Any:
    parsed = parse(text)
    assert parsed.problems == []
    return parsed.root.plain()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"), ("on", "on"), ("Yes", "Yes"), ("off", "off"), ("y", "y"),
        ("true", True), ("FALSE", False), ("null", None), ("~", None), ("", None),
        ("1:30", "1:30"), ("12:30:45", "12:30:45"), ("2024-01-01", "2024-01-01"), ("1_000", "1_000"),
        ("12", 12), ("-3", -3), ("+4", 4), ("0", 0), ("0o14", 12), ("0x1F", 31),
        ("1e3", 1000.0), ("1e-3", 0.001), ("3.10", 3.1), (".5", 0.5), ("5.", 5.0), ("-0.0", -0.0),
        (".inf", math.inf), ("-.INF", -math.inf), ("inf", "inf"), ("nan", "nan"), ("1e999", math.inf),
        ("'12'", "12"), ('"no"', "no"), ("2 GiB", "2 GiB"), ("5%", "5%"), ("v1.2", "v1.2"),
    ],
)  # fmt: skip
def test_an_unquoted_word_means_what_yaml_1_2_says(written: str, meant: Any) -> None:
    found = plain(f"a: {written}")["a"]

    assert found == meant
    assert type(found) is type(meant)


def test_nan_is_a_number_and_not_a_word() -> None:
    assert math.isnan(plain("a: .nan")["a"])


@pytest.mark.parametrize("written", ["012", "-007", "+00", "00"])
def test_a_leading_zero_is_a_problem_because_two_readers_would_differ(written: str) -> None:
    (problem,) = parse(f"a: {written}").problems

    assert written in problem.text
    assert (problem.line, problem.column) == (1, 4)


def test_a_key_is_always_text() -> None:
    assert plain("{on: 1, no: 2, 3: 4, true: 5}") == {"on": 1, "no": 2, "3": 4, "true": 5}


def test_every_key_and_value_knows_its_line_and_column() -> None:
    root = parse("# first\nstudy: s\nworkload:\n  train:\n    batch: [16,\n      64]\n").root

    batch = root.value["workload"].value["train"].value["batch"]
    assert root.keys["workload"] == (3, 1)
    assert (batch.line, batch.column) == (5, 12)
    assert [(item.line, item.column) for item in batch.value] == [(5, 13), (6, 7)]


def test_an_alias_stands_for_what_it_names() -> None:
    assert plain("a: &x [1, 2]\nb: *x") == {"a": [1, 2], "b": [1, 2]}


def test_so_many_aliases_and_no_more() -> None:
    few = "a: &x 1\nb: [" + "*x, " * MAX_ALIASES + "]"
    assert len(plain(few)["b"]) == MAX_ALIASES
    with pytest.raises(Fatal, match="aliases"):
        parse(few.replace("]", "*x]"))


def test_so_many_digits_and_no_more() -> None:
    assert plain(f"a: {'9' * MAX_DIGITS}")["a"] == int("9" * MAX_DIGITS)
    [problem] = parse(f"a: {'9' * (MAX_DIGITS + 1)}").problems
    assert "this number has 301 digits" in str(problem)


def test_so_deep_and_no_deeper() -> None:
    def nested(depth: int) -> str:
        return "[" * depth + "]" * depth

    plain(nested(MAX_DEPTH))
    with pytest.raises(Fatal, match="nested"):
        parse(nested(MAX_DEPTH + 1))


def test_an_alias_does_not_hide_depth() -> None:
    with pytest.raises(Fatal, match="nested"):
        parse("a: &x " + "[" * 20 + "]" * 20 + "\nb: " + "[" * 20 + "*x" + "]" * 20)


def test_so_many_values_and_no_more() -> None:
    assert len(plain("[" + "1," * (MAX_NODES - 1) + "]")) == MAX_NODES - 1
    with pytest.raises(Fatal, match="values"):
        parse("[" + "1," * MAX_NODES + "]")


def test_a_duplicate_key_names_both_lines_and_the_first_value_stays() -> None:
    parsed = parse("a: 1\nb: 2\na: 3\n")

    assert parsed.root.plain() == {"a": 1, "b": 2}
    (problem,) = parsed.problems
    assert problem.line == 3
    assert "line 1" in problem.text


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!str", "!mine", "!<tag:x,2000:y>", "!"])
def test_no_tag_is_taken(tag: str) -> None:
    problems = parse(f"a: {tag} x").problems

    assert len(problems) == 1
    assert "tag" in problems[0].text


def test_block_text_keeps_its_lines() -> None:
    assert plain("a: |\n  one\n  two\nb: >\n  one\n  two\n") == {"a": "one\ntwo\n", "b": "one two\n"}
