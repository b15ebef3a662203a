"""Bad study files and the exact words that their writers get: `NAME.yaml` beside `NAME.txt`."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from stand_in_parts import stand_ins
from tare.base.errors import StudyError
from tare.studies.load import loads

FOLDER = Path(__file__).parent / "study_errors"
CASES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_a_bad_study_gets_these_words(case: str) -> None:
    path = FOLDER / f"{case}.yaml"
    with stand_ins(), pytest.raises(StudyError) as caught:
        loads(path.read_bytes(), path.name)

    assert str(caught.value) + "\n" == path.with_suffix(".txt").read_text()


@pytest.mark.parametrize("case", CASES)
def test_each_complaint_has_its_file_and_line_and_they_are_in_order(case: str) -> None:
    said = (FOLDER / f"{case}.txt").read_text().splitlines()

    heads = [line for line in said if not line.startswith(("  ", f"{case}.yaml: and "))]
    lines = [re.match(rf"{case}\.yaml:(\d+): \S", line) for line in heads]

    assert lines
    assert all(lines), heads
    numbers = [int(match[1]) for match in lines if match]
    assert numbers == sorted(numbers)


def test_no_complaint_is_written_for_programmers() -> None:
    everything = "".join((FOLDER / f"{case}.txt").read_text() for case in CASES)

    for jargon in ("Input should", "pydantic", "http", "Traceback", "None", "NoneType", "dict", "Value error"):
        assert jargon not in everything


def test_every_bad_file_has_its_words_and_every_word_its_file() -> None:
    assert CASES
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == CASES


def test_a_tag_that_would_run_a_command_runs_nothing() -> None:
    before = Path("/tmp/owned").exists()
    with stand_ins(), pytest.raises(StudyError):
        loads((FOLDER / "h5_python_tag.yaml").read_bytes(), "study.yaml")

    assert Path("/tmp/owned").exists() == before


def test_a_bomb_is_refused_at_once() -> None:
    start = time.process_time()
    with stand_ins(), pytest.raises(StudyError):
        loads((FOLDER / "h4_alias_bomb.yaml").read_bytes(), "study.yaml")

    assert time.process_time() - start < 30
