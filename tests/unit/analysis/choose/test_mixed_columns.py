"""A note where rows of several models are taken for trials of one configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tare.analysis.choose.configurations import mixed_notes
from tare.cli import tare as verbs

NOTE = "column 'model' differs within configurations: --group model keeps its values apart."
HEAD = "model,mode,run,seen,ms,joules\n"
MIXED = HEAD + "lenet5,1,a,5,1.0,2.0\nvgg11,1,b,6,9.0,8.0\nlenet5,2,c,7,2.0,1.0\nvgg11,2,d,8,8.0,9.0\n"
APART = HEAD + "lenet5,1,a,5,1.0,2.0\nlenet5,1,b,6,1.1,2.1\nvgg11,2,c,7,2.0,1.0\nvgg11,2,d,8,2.1,1.1\n"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    (tmp_path / "mixed.csv").write_text(MIXED)
    return tmp_path / "mixed.csv"


def test_a_text_column_that_differs_within_a_configuration_is_named_and_numbers_and_ids_are_not(mixed: Path) -> None:
    assert mixed_notes(mixed, ["mode"], None) == [NOTE]


def test_nothing_is_said_where_the_values_are_kept_apart(mixed: Path, tmp_path: Path) -> None:
    assert mixed_notes(mixed, ["mode"], "model") == []
    assert mixed_notes(mixed, ["mode", "model"], None) == []
    (tmp_path / "apart.csv").write_text(APART)
    assert mixed_notes(tmp_path / "apart.csv", ["mode"], None) == []


def test_a_store_is_not_looked_at(tmp_path: Path) -> None:
    assert mixed_notes(tmp_path, ["mode"], None) == []


@pytest.mark.parametrize("verb", [("front", "--minimise", "ms,joules"), ("recommend", "--minimise", "joules")])
def test_both_verbs_say_it(verb: tuple[str, ...], mixed: Path) -> None:
    name, *options = verb
    words = ["choose", name, str(mixed), "--settings", "mode", *options]

    assert NOTE in _said(words)
    assert NOTE not in _said([*words, "--group", "model"])


def _said(words: list[str]) -> str:
    done = CliRunner().invoke(verbs, words)
    assert done.exit_code == 0, done.output
    return " ".join(done.stderr.split())
