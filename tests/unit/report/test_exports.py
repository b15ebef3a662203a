"""The findings for other programs and pages: every label stays a label there too."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import some_weighings as some
from hostile import PAYLOADS, hostile_sample
from pretended_run import new_store, run
from tare.analysis.tables.table import FORMULA, exported_trials
from tare.cli import tare
from tare.report.export import as_csv, as_latex, as_markdown, write_parquet
from tare.report.html import Page, page


def page_of(sample: some.Sample) -> Page:
    return page(sample.weighing, sample.records, some.GENERATED, some.STUDY_TEXT, ())


def test_markdown_says_what_the_first_screen_says() -> None:
    text = as_markdown(page_of(some.tainted()))
    assert "| docker | 1.82 ms | +1.6 % |" in text
    assert "## What taints this" in text
    assert "The machine swapped 12 pages" in text
    assert text.count("## ") > 5
    widths = {line.count(" | ") for line in text.splitlines() if line.startswith("| level | median")}
    assert widths == {5}


def test_markdown_has_what_stands_behind_a_word_in_brackets() -> None:
    from dataclasses import replace

    content = page_of(some.tainted())
    (first, *_) = content.answers
    answer = replace(first, phrase="cannot tell", doubts="about 1 more block")

    assert "cannot tell** (about 1 more block). " in as_markdown(replace(content, answers=(answer,)))
    assert "cannot tell**. " in as_markdown(replace(content, answers=(replace(answer, doubts=""),)))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_label_breaks_out_of_markdown_or_latex(payload: str) -> None:
    content = page_of(hostile_sample(payload))
    marked = as_markdown(content)
    assert not re.search(r"(?<!\\)<\w", marked)
    assert "\x1b" not in marked
    lines = as_latex(content).splitlines()
    rows = [line for line in lines if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {5}
    assert not any(re.search(r"(?<!\\)[#$%_^~]", re.sub(r"\$(\\pm|-|\\to)\$", "", row)) for row in rows)


def test_a_latex_table_is_for_one_column_or_two_with_its_doubts_below_it() -> None:
    from dataclasses import replace

    content = page_of(some.several())
    doubted = replace(
        content.verdicts[1], phrase="slower (throttling differs; mean and median disagree)", effect="-3.1 %"
    )
    content = replace(content, verdicts=(content.verdicts[0], doubted, *content.verdicts[2:]))
    one, two = as_latex(content), as_latex(content, 2)
    assert r"\begin{table}" in one and r"\footnotesize" in one
    assert r"\begin{table*}" in two and r"\footnotesize" not in two
    assert r"slower\textsuperscript{a,b} &" in one
    assert r"\textsuperscript{a}throttling differs; \textsuperscript{b}mean and median disagree" in one
    assert r"& $-$3.1 \% &" in one


@pytest.mark.parametrize("sign", FORMULA)
def test_what_a_spreadsheet_would_run_is_quoted_and_read_back_as_it_was(sign: str, tmp_path: Path) -> None:
    from dataclasses import replace

    records = [replace(each, settings={**each.settings, "platform": f"{sign}1+1"}) for each in some.records()]
    (tmp_path / "t.csv").write_text(as_csv(records))
    rows = list(csv.DictReader(io.StringIO(as_csv(records), newline="")))
    assert {row["setting.platform"] for row in rows} == {f"'{sign}1+1"}
    found = exported_trials(tmp_path / "t.csv")
    assert found is not None
    assert {each.settings["platform"] for each in found.records()} == {f"{sign}1+1"}


def test_what_is_said_of_a_store_cannot_turn_the_direction_of_reading(tmp_path: Path) -> None:
    with new_store(tmp_path / "a\u202eb", []):
        pass
    done = CliRunner().invoke(tare, ["store", "check", str(tmp_path / "a\u202eb")])
    assert done.exit_code == 0
    assert "\u202e" not in done.output
    assert "every sealed trial is whole" in done.output


def test_csv_has_one_row_a_trial_and_nothing_that_a_spreadsheet_would_run() -> None:
    from dataclasses import replace

    records = [replace(each, settings={**each.settings, "platform": "=1+1"}) for each in some.records()]
    rows = list(csv.DictReader(io.StringIO(as_csv(records))))
    assert len(rows) == len(records)
    assert {row["setting.platform"] for row in rows} == {"'=1+1"}
    assert float(rows[0]["metric.step_s"]) == records[0].metrics["step_s"]
    assert all(not cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())


def test_parquet_has_types_and_missing_stays_missing(tmp_path: Path) -> None:
    from dataclasses import replace

    records = some.records()
    records[0] = replace(records[0], metrics={})
    write_parquet(records, tmp_path / "trials.parquet")
    query = f'SELECT block, "metric.step_s", "setting.platform" FROM \'{tmp_path / "trials.parquet"}\''
    rows = duckdb.sql(query).fetchall()
    assert rows[0][1] is None
    assert rows[1][1] == records[1].metrics["step_s"]
    assert isinstance(rows[0][0], int)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("export") / "store"
    trials = some.records()
    with new_store(root, trials) as opened:
        list(run(opened, trials, 0.2 / len(trials)))
    return root


@pytest.mark.parametrize("kind", ["html", "md", "csv", "parquet", "latex", "json"])
def test_every_format_is_written_where_it_was_asked_for(kind: str, store: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(tare, ["report", str(store), "--format", kind, "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out").stat().st_size > 300
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_json_goes_to_stdout_and_holds_everything(store: Path) -> None:
    done = CliRunner().invoke(tare, ["report", str(store), "--format", "json", "-o", "-"])
    told = json.loads(done.stdout)
    assert len(told["records"]) == 36
    assert told["comparisons"][0]["level"] == "docker"


def test_a_figure_is_listed_by_name_and_written_by_name(store: Path, tmp_path: Path) -> None:
    listed = json.loads(CliRunner().invoke(tare, ["report", str(store), "--figures", "--json"]).stdout)["figures"]
    assert {"effects", "trials-by-block", "step-parts"} <= {each["name"] for each in listed}
    done = CliRunner().invoke(tare, ["report", str(store), "--figure", "effects", "-o", str(tmp_path / "effects.pdf")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "effects.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["nope", "-o", "x.pdf"], "No figure 'nope'"), (["effects", "-o", "x.doc"], ".svg, .pdf, .png")],
)
def test_a_wrong_name_or_ending_is_said(arguments: list[str], says: str, store: Path, tmp_path: Path) -> None:
    name, *rest = arguments
    done = CliRunner().invoke(tare, ["report", str(store), "--figure", name, *rest])
    assert says in str(done.exception)
    assert not Path("x.pdf").exists()
