"""The gate's answer as JUnit and as a comment, from a table whose answer is known."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from some_weighings import comparison, weighing
from tare.analysis.sentences import verdict_phrase
from tare.cli import tare
from tare.report.export import as_comment


def compared(folder: Path, slow: float, *words: str, level: str = "new") -> tuple[int, ElementTree.Element, str]:
    lines = [f"{run},{name},{value + 0.001 * run}" for run in range(10)
             for name, value in (("old", 1.0), (level, slow))]  # fmt: skip
    (folder / "runs.csv").write_text("\n".join(["run,image,step_s", *lines]))
    done = CliRunner().invoke(
        tare,
        ["compare", str(folder / "runs.csv"), "--by", "image", "--against", "old", "--metric", "step_s", "--block",
         "run", "--order", "shuffled", "--junit", str(folder / "junit.xml"), "--comment",
         str(folder / "comment.md"), *words],
    )  # fmt: skip
    return done.exit_code, ElementTree.parse(folder / "junit.xml").getroot(), (folder / "comment.md").read_text()


def test_a_slowdown_over_the_limit_is_a_failed_case(tmp_path: Path) -> None:
    code, suite, comment = compared(tmp_path, 1.2, "--fail-over", "5%")
    assert code == 1
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("1", "1", "0")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "worse" in str(failure.get("message"))
    assert comment.startswith("**failed**: new is slower than old: median step +19.9 %")
    assert "| new |" in comment


def test_an_equal_level_passes(tmp_path: Path) -> None:
    code, suite, comment = compared(tmp_path, 1.0001, "--fail-over", "5%")
    assert code == 0
    assert suite.get("failures") == "0"
    assert comment.startswith("**passed**")


def test_without_a_limit_nothing_passes_or_fails(tmp_path: Path) -> None:
    code, suite, comment = compared(tmp_path, 1.2)
    assert code == 0
    assert suite.get("failures") == "0"
    assert "passed" not in comment


@pytest.mark.parametrize("level", ["</testsuite><x>", "a|b](http://x)", "\u202eq"])
def test_a_hostile_level_stays_text(level: str, tmp_path: Path) -> None:
    _, suite, comment = compared(tmp_path, 1.2, "--fail-over", "5%", level=level)
    assert {each.tag for each in suite.iter()} == {"testsuite", "testcase", "failure", "system-out"}
    assert "](http" not in comment.replace("\\]", "")
    assert "\u202e" not in comment


def test_the_comment_says_what_the_terminal_says() -> None:
    found, start = comparison(), comparison(metric="startup_s", verdict="slower", effect=0.4, low=0.3, high=0.5)

    comment = as_comment(weighing(comparisons=(found,), tested=(start,)), None)

    assert comment.startswith("docker is slower than bare, by less than the margin of 5 %: median step +1.6 %")
    assert f"| docker | median step | +1.6 % \\[+0.4, +2.9\\] | {verdict_phrase(found)} |" in comment
    assert "- docker is slower than bare: start-up to the first step +40.0 % \\[+30.0, +50.0\\]." in comment
    assert comment.count("median step +1.6 %") == 1
