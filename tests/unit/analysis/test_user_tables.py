"""Tables of a user's own: read as they are written, and refused by row where they are wrong.

`tare compare` of a table that tare wrote: the same verdict as from the store that it came from.
"""

from __future__ import annotations

import codecs
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis_figures import FakeStore, record, weighed_records
from some_records import because
from tare.analysis.model import Comparison
from tare.analysis.tables.table import exported_trials, numeric_columns, read_table, rows_to_compare
from tare.analysis.weighing import weigh
from tare.base.errors import StudyError
from tare.cli import tare
from tare.records.model import Record
from tare.report.export import as_csv, write_parquet

ROWS = [("bare", "1.5", "1"), ("docker", "1.75", "1"), ("bare", "1.25", "2")]


def csv_text(rows=ROWS, delimiter=",", end="\n"):
    return end.join(delimiter.join(row) for row in [("platform", "step_s", "block"), *rows]) + end


def written(folder, name, text, encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def plain(path, block="block"):
    return [
        (row.settings["platform"], row.metrics["step_s"], row.block_id)
        for row in rows_to_compare(path, "platform", "step_s", block)
    ]


EXPECTED = [("bare", 1.5, "1"), ("docker", 1.75, "1"), ("bare", 1.25, "2")]
FORMS = {
    "plain": ("t.csv", csv_text()),
    "CRLF": ("t.csv", csv_text(end="\r\n")),
    "byte-order mark": ("t.csv", codecs.BOM_UTF8.decode() + csv_text()),
    "semicolons": ("t.csv", csv_text(delimiter=";")),
    "tabs": ("t.tsv", csv_text(delimiter="\t")),
    "quoted": ("t.CSV", '"platform","step_s","block"\n"bare","1.5","1"\n"docker",1.75,"1"\nbare,1.25,2'),
    "blank lines": ("t.csv", csv_text().replace("\ndocker", "\n\ndocker") + "\n\n"),
    "spaces in the header": ("t.csv", csv_text().replace("platform,step_s", "platform , step_s")),
    "spaces in the cells": ("t.csv", csv_text([(f" {a}", f"\t{b} ", f"{c}  ") for a, b, c in ROWS])),
    "JSON lines": (
        "t.jsonl",
        '{"platform": "bare", "step_s": 1.5, "block": 1}\n{"block": "1", "platform": "docker", "step_s": "1.75"}\n'
        '\n{"platform": "bare", "step_s": 125e-2, "block": 2}\n',
    ),
}


@pytest.mark.parametrize(("name", "text"), FORMS.values(), ids=FORMS.keys())
def test_a_table_reads_the_same_in_every_form(tmp_path, name, text):
    assert plain(written(tmp_path, name, text)) == EXPECTED


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n",
        "a,b\n1,\n,\n",
        "a,b",
        "a , b\n 1,x y",
        "a\tb;c\n1\t2;3\n",
        "a,b\n1,2\n\n",
        "a,b\n1\n",
        "a,a\n1,2\n",
    ],
)
def test_a_plain_csv_is_cut_as_the_standard_library_reads_it(tmp_path, monkeypatch, text):
    def columns(path):
        try:
            return read_table(path).columns
        except StudyError as error:
            return str(error).replace(path.name, "")

    found = columns(written(tmp_path, "one.csv", text))
    monkeypatch.setattr("tare.analysis.tables.table._plain_columns", lambda *_: None)
    assert columns(written(tmp_path, "two.csv", text)) == found


def test_a_parquet_file_reads_the_same(tmp_path):
    path = tmp_path / "odd [name]*?.parquet"
    rows = "('bare', 1.5::DOUBLE, 1), ('docker', 1.75, 1), ('bare', 1.25, 2)"
    duckdb.sql(f"SELECT * FROM (VALUES {rows}) t(platform, step_s, block)").write_parquet(
        str(tmp_path / "plain.parquet")
    )
    (tmp_path / "plain.parquet").rename(path)

    assert plain(path) == EXPECTED


def test_without_a_block_column_rows_have_no_block(tmp_path):
    assert plain(written(tmp_path, "t.csv", csv_text()), block=None)[0] == ("bare", 1.5, None)


def test_labels_are_text_as_written(tmp_path):
    labels = ["1", "1.50", "true", "007", "a, b", 'say "x"', "naïve", "None"]
    rows = ["level,v", *('"' + label.replace('"', '""') + '",1' for label in labels)]

    found = rows_to_compare(written(tmp_path, "t.csv", "\n".join(rows)), "level", "v")

    assert [row.settings["level"] for row in found] == labels


def test_labels_of_json_are_as_they_are_written_there(tmp_path):
    path = written(tmp_path, "t.ndjson", "".join(f'{{"l": {label}, "v": 1}}\n' for label in ('"1"', "1.50", "true")))

    assert [row.settings["l"] for row in rows_to_compare(path, "l", "v")] == ["1", "1.50", "true"]


def test_labels_of_parquet_keep_their_type_as_text(tmp_path):
    duckdb.sql("SELECT true AS l, 2.5 AS v, 7 AS b").write_parquet(str(tmp_path / "t.parquet"))

    (found,) = rows_to_compare(tmp_path / "t.parquet", "l", "v", "b")

    assert (found.settings, found.metrics, found.block_id) == ({"l": "true"}, {"v": 2.5}, "7")


def test_a_field_may_hold_a_line_break_and_rows_are_still_counted_right(tmp_path):
    path = written(tmp_path, "t.csv", 'platform,step_s,note\nbare,1,"two\nlines"\nbare,x,\n')

    with pytest.raises(StudyError, match="row 2, column 'step_s'"):
        rows_to_compare(path, "platform", "step_s")


BAD_VALUES = {
    "zero": ("0", "more than zero"),
    "negative": ("-1.5", "more than zero"),
    "NaN": ("nan", "more than zero"),
    "infinity": ("inf", "more than zero"),
    "words": ("fast", "'fast' is not a number"),
    "decimal comma": ('"1,5"', r"Did you mean 1\.5\?"),
    "unit": ("1.5 ms", "'1.5 ms' is not a number"),
    "underscore": ("1_5", "cannot be compared"),
    "nothing": ("", "it is empty"),
}


@pytest.mark.parametrize(("cell", "said"), BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_a_value_that_cannot_be_compared_is_refused_by_file_row_and_column(tmp_path, cell, said):
    path = written(tmp_path, "t.csv", csv_text([ROWS[0], ("docker", cell, "1"), ROWS[2]]))

    with pytest.raises(StudyError, match=rf"t\.csv, row 2, column 'step_s': .*{said}"):
        plain(path)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "null", "[1]", "true"])
def test_a_json_value_that_is_no_number_is_refused_by_row(tmp_path, literal):
    path = written(tmp_path, "t.jsonl", f'{{"platform": "bare", "step_s": {literal}, "block": 1}}\n')

    with pytest.raises(StudyError, match="row 1, column 'step_s'"):
        plain(path)


@pytest.mark.parametrize("column", ["platform", "block"])
def test_an_empty_label_is_refused_by_row(tmp_path, column):
    row = ("", "1", "1") if column == "platform" else ("bare", "1", " ")

    with pytest.raises(StudyError, match=f"row 2, column '{column}': it is empty"):
        plain(written(tmp_path, "t.csv", csv_text([ROWS[0], row])))


def test_a_row_of_json_without_the_column_is_refused_by_row(tmp_path):
    path = written(
        tmp_path, "t.jsonl", '{"platform": "bare", "step_s": 1, "block": 1}\n{"platform": "bare", "block": 1}\n'
    )

    with pytest.raises(StudyError, match="row 2, column 'step_s': it is empty"):
        plain(path)


def test_values_too_far_apart_are_refused_by_file_and_column(tmp_path):
    path = written(tmp_path, "t.csv", csv_text([("bare", "1e-200", "1"), ("docker", "1e200", "1")]))

    with pytest.raises(StudyError, match=r"t\.csv, column 'step_s': the values run from 1e-200 to 1e\+200"):
        plain(path)


def test_a_missing_column_is_named_with_the_nearest(tmp_path):
    path = written(tmp_path, "t.csv", csv_text())

    with pytest.raises(StudyError) as refused:
        rows_to_compare(path, "platfrom", "step_s")

    expected = "No column 'platfrom'. Did you mean 'platform'? Available: platform, step_s, block."
    assert str(refused.value) == f"{path}: {expected}"
    assert refused.value.exit_code == 2


BAD_FILES = {
    "empty": ("t.csv", "", "the file is empty"),
    "header only": ("t.csv", "platform,step_s\n", "the table has no rows"),
    "short row": ("t.csv", "platform,step_s\nbare,1\nbare\n", "row 2: it has 1 fields where the header has 2"),
    "long row": ("t.csv", "platform,step_s\nbare,1,2\n", "row 1: it has 3 fields where the header has 2"),
    "two names": ("t.csv", "platform,step_s,step_s\nbare,1,2\n", "two columns named 'step_s'"),
    "open quote": ("t.csv", 'platform,step_s\n"bare,1\n', "this is not CSV"),
    "NUL": ("t.csv", "platform,step_s\nba\0re,1\0\n", "not CSV|not a number"),
    "no JSON": ("t.jsonl", '{"platform": "bare"\n', r"t\.jsonl:1: this is not JSON"),
    "JSON list": ("t.jsonl", "[1, 2]\n", r"t\.jsonl:1: each line must be an object"),
    "deep JSON": ("t.jsonl", "[" * 100_000, "this is not JSON"),
    "empty JSON": ("t.jsonl", "\n", "the table has no rows"),
    "no Parquet": ("t.parquet", "PAR1 but not really", "not a Parquet file"),
    "other suffix": ("t.xlsx", "", r"a table ends in one of \.csv, \.tsv, \.parquet, \.jsonl, \.ndjson"),
}


@pytest.mark.parametrize(("name", "text", "said"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_file_that_is_no_table_is_refused_in_words(tmp_path, name, text, said):
    with pytest.raises(StudyError, match=said):
        rows_to_compare(written(tmp_path, name, text), "platform", "step_s")


def test_lines_that_each_name_their_own_are_no_table_of_hundreds_of_millions_of_cells(tmp_path):
    path = written(tmp_path, "t.jsonl", "".join(f'{{"n{number}": 1}}\n' for number in range(20_000)))

    with pytest.raises(StudyError, match="give each line the same names"):
        read_table(path)


def test_a_table_in_another_encoding_is_refused_in_words(tmp_path):
    with pytest.raises(StudyError, match="not UTF-8"):
        plain(written(tmp_path, "t.csv", csv_text([("naïve", "1", "1")]), encoding="latin-1"))


def test_a_missing_file_and_a_folder_are_refused_in_words(tmp_path):
    (tmp_path / "folder.csv").mkdir()

    for name in ("none.csv", "folder.csv"):
        with pytest.raises(StudyError, match=r"no such file|not a file"):
            read_table(tmp_path / name)


def test_a_hundred_thousand_rows_are_read_quickly(tmp_path):
    values = np.random.default_rng(0).lognormal(0, 0.1, 100_000)
    rows = "\n".join(f"{'bare' if n % 2 else 'docker'},{value},{n // 2}" for n, value in enumerate(values))
    path = written(tmp_path, "t.csv", f"platform,step_s,block\n{rows}\n")

    begin = time.process_time()
    found = plain(path)

    assert len(found) == 100_000
    assert time.process_time() - begin < 50  # about 0.3 s on an idle machine
    assert json.dumps(found[0]).startswith('["docker"')


NUMBERS = ["1", "2.5", "-3e-2", "+.5", "5.", "0.1234567890123456789", "123456789012345678901", "4.9E-324"]
OTHERS = ["", "1e", "1-2", "1 ", "e", ".", "nan", "inf", "1_0", "1e999", "0x1", '"1"', "x", "\r", "\n", "1,5", "٣"]
CELLS = st.sampled_from(NUMBERS) | st.sampled_from(NUMBERS + OTHERS)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=4), st.sampled_from(";\t"), st.sampled_from(["\n", ""]))
def test_numbers_that_are_read_at_once_are_those_of_the_cells(tmp_path_factory, rows, delimiter, end):
    text = "\n".join(delimiter.join(row) for row in [("a", "b"), *rows]) + end
    path = written(tmp_path_factory.getbasetemp(), "numbers.csv", text)
    found = numeric_columns(path)
    assert (found is not None) == (bool(rows) and all(cell in NUMBERS for row in rows for cell in row))
    assert found is None or [*zip(*found.values(), strict=True)] == [tuple(map(float, row)) for row in rows]


STUDY = {
    "study": "weigh",
    "platform": ["bare", "docker"],
    "compare": {"by": "platform", "against": {"platform": "bare"}, "margin": 0.03},
    "repeat": {"min": 6, "max": 20, "until": 0.02},
}


def written_by_tare(folder: Path, records: list[Record], study: dict[str, Any], ending: str = ".csv") -> Path:
    path = folder / f"trials{ending}"
    if ending == ".csv":
        path.write_text(as_csv(records, study))
    else:
        write_parquet(records, path, study)
    return path


def from_table(path: Path, **asked: Any) -> Any:
    exported = exported_trials(path)
    assert exported is not None
    return weigh(exported, **asked)


def _as_json(each: Comparison) -> dict[str, Any]:
    """Without the note on marks of one side alone: a table has the states of trials and not the codes of marks."""
    notes = [note for note in each.notes if note.code != "compare.unlike-conditions"]
    return {**each.as_json(), "notes": notes}


@settings(max_examples=12)
@given(
    n=st.integers(6, 12),
    effect=st.sampled_from([-0.04, 0.0, 0.02, 0.2]),
    seed=st.integers(0, 9),
    unusable=st.sets(st.integers(0, 17), max_size=5),
    state=st.sampled_from(["failed", "invalid", "suspect", "interrupted"]),
)
def test_a_table_gives_the_verdict_of_its_store(tmp_path_factory, n, effect, seed, unusable, state):
    records = weighed_records(n, effect, seed)
    for place in unusable:  # without figures where they failed: such rows are blank there
        metrics = records[place].metrics if state == "suspect" else {}
        reasons = (because("=it, failed"),)
        records[place] = replace(records[place], state=state, reasons=reasons, metrics=metrics)
    path = written_by_tare(tmp_path_factory.mktemp("table"), records, STUDY)
    ours, theirs = from_table(path), weigh(FakeStore(records, STUDY))
    assert [_as_json(each) for each in ours.comparisons] == [_as_json(each) for each in theirs.comparisons]
    assert (ours.question, ours.counts, ours.medians) == (theirs.question, theirs.counts, theirs.medians)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_commands_and_levels_that_are_lists_come_back_as_they_were(tmp_path, ending):
    made = [
        record(name, block, 0.002 + block * 1e-5, settings={"workload.argv": ["main.py", "-b", size]})
        for block in range(3)
        for name in ("bare", "docker")
        for size in ("8", "16")
    ]
    exported = exported_trials(written_by_tare(tmp_path, made, STUDY, ending))
    assert exported is not None
    assert [each.settings for each in exported.records()] == [each.settings for each in made]
    assert [each.metrics for each in exported.records()] == [each.metrics for each in made]


def test_the_verb_takes_columns_by_either_name_and_needs_no_metric(tmp_path):
    path = written_by_tare(tmp_path, weighed_records(8, 0.1), STUDY)
    plain = CliRunner().invoke(tare, ["compare", str(path)])
    named = CliRunner().invoke(tare, ["compare", str(path), "--by", "setting.platform", "--metric", "metric.step_s"])
    assert plain.exit_code == named.exit_code == 0
    assert plain.output == named.output
    assert "slower" in plain.output


def test_a_table_of_someone_else_is_none_of_ours(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("platform,step_s\nbare,1\ndocker,2\n")
    assert exported_trials(path) is None
