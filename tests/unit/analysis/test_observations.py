"""Rows to decide from: the same from a store as from a table, and a sentence for whatever is wrong with them."""

from dataclasses import replace
from pathlib import Path

import pytest

from some_records import MARKS, draft
from tare.analysis.choose.columns import base_factor
from tare.analysis.observations import columns_of, observations, source_notes, usable_attempts
from tare.base.errors import StudyError
from tare.records.model import started_s
from tare.records.spool import SpoolWriter
from tare.records.store import Store


def table(folder: Path, text: str, name: str = "modes.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def seal(store: Store, trial: str, state="ok", metrics=None, **changes) -> None:
    begun = draft(trial, **changes)
    writer = store.begin(begun)
    with SpoolWriter(writer.spool):
        pass
    writer.seal(replace(begun, state=state, metrics=metrics or {}, end_ns=300), MARKS, "", "")


@pytest.fixture
def store(tmp_path):
    made = Store.create(tmp_path / "store", {"study": "s"}, "study: s\n")
    yield made
    made.close()


def test_settings_are_numbers_where_the_whole_column_is_numeric_and_text_elsewhere(tmp_path):
    path = table(tmp_path, "model,mhz,mode,ms\nlenet,345,15W,5.1\nlenet,345.0,20,4.9\n")

    first, second = observations(path, settings=["mhz", "mode"], values=["ms"], group="model")

    assert first.settings == {"mhz": 345.0, "mode": "15W"}
    assert second.settings == {"mhz": 345.0, "mode": "20"}
    assert (first.group, first.trial, first.metrics) == ("lenet", "row 1", {"ms": 5.1})


def test_a_figure_that_a_row_does_not_have_is_absent(tmp_path):
    path = table(tmp_path, "mhz,ms,joules\n345,5.1,\n500,4.0,2\n")

    first, second = observations(path, settings=["mhz"], values=["ms", "joules"])

    assert first.metrics == {"ms": 5.1}
    assert second.metrics == {"ms": 4.0, "joules": 2.0}


@pytest.mark.parametrize(
    ("text", "settings", "said"),
    [
        ("mhz,ms\n345,fast\n", ["mhz"], "row 1, column 'ms': 'fast' is not a number"),
        ("mhz;ms\n345;5,1\n", ["mhz"], "Did you mean 5.1?"),
        ("mhz,ms\n345,nan\n", ["mhz"], "row 1, column 'ms': 'nan' is not a finite number"),
        ("mhz,ms\n345,-1\n", ["mhz"], "row 1: ms is -1, and cannot be less than zero"),
        ("mhz,ms\n", ["mhz"], "the table has no rows"),
        ("mhz,ms\n345,\n", ["mhz"], "'ms' has no figure in any row"),
        ("mhz,seconds\n345,1\n", ["mhz"], "No column 'ms'"),
        ("mhz,ms\n345,1\n", ["mzh"], "Did you mean 'mhz'?"),
        ("mhz,ms\n345,1\ninf,2\n", ["mhz"], "row 2, column 'mhz': 'inf' is not a finite number"),
        ("mhz,ms\n345,1_0\n", ["mhz"], "'1_0' is not a number"),
    ],
)
def test_a_bad_table_gets_a_sentence(tmp_path, text, settings, said):
    path = table(tmp_path, text)

    with pytest.raises(StudyError) as told:
        observations(path, settings=settings, values=["ms"])

    assert said in str(told.value)


def test_a_table_must_be_told_which_columns_are_settings(tmp_path):
    path = table(tmp_path, "mhz,cores,ms\n345,1,5\n")

    with pytest.raises(StudyError, match="--settings with some of mhz, cores"):
        observations(path, settings=None, values=["ms"])


def test_an_empty_group_is_refused(tmp_path):
    path = table(tmp_path, "model,mhz,ms\n,345,5\n")

    with pytest.raises(StudyError, match="row 1, column 'model': it is empty"):
        observations(path, settings=["mhz"], values=["ms"], group="model")


def test_a_signed_figure_may_lie_below_zero(tmp_path):
    path = table(tmp_path, "mhz,overhead_s\n345,-0.1\n")

    (row,) = observations(path, settings=["mhz"], values=["overhead_s"], signed=["overhead_s"])

    assert row.metrics == {"overhead_s": -0.1}


def test_of_a_store_every_setting_that_varies_is_taken_and_short_names_are_found(store):
    for trial, batch in (("aa", 16), ("bb", 64)):
        settings = {"platform": "bare", "workload": "torch_train", "workload.batch": batch, "workload.lr": 0.1}
        seal(store, trial, metrics={"step_s": batch / 1000}, settings=settings)

    by_itself = observations(store.root, settings=None, values=["step_s"])
    asked = observations(store.root, settings=["batch"], values=["step_s"], group="platform")

    assert [row.settings for row in by_itself] == [
        {"platform": "bare", "workload.batch": 16.0},
        {"platform": "bare", "workload.batch": 64.0},
    ]
    assert [(row.settings, row.group) for row in asked] == [({"batch": 16.0}, "bare"), ({"batch": 64.0}, "bare")]
    assert asked[0].block_id == "0"


def test_of_a_store_only_the_newest_usable_attempt_counts_and_twins_are_not_pooled(store):
    seal(store, "aa", metrics={"step_s": 1.0})
    seal(store, "aa", metrics={"step_s": 2.0})
    seal(store, "aa", state="invalid", metrics={"step_s": 9.0})
    seal(store, "bb", state="failed", metrics={"step_s": 9.0}, position=1)
    seal(store, "cc", metrics={"step_s": 9.0}, position=2, twin=1)

    rows = observations(store.root, settings=["platform"], values=["step_s"])

    assert [(row.trial, row.metrics["step_s"]) for row in rows] == [("aa", 2.0)]
    assert source_notes(store.root) == [f"1 of 3 trials is excluded as invalid: `tare show {store.root}` lists them."]


def test_an_attempt_with_all_figures_is_preferred_to_a_newer_one_without(store):
    seal(store, "aa", metrics={"step_s": 1.0, "energy_j": 5.0})
    seal(store, "aa", metrics={"step_s": 2.0})

    (row,) = observations(store.root, settings=["platform"], values=["step_s", "energy_j"])

    assert row.metrics == {"step_s": 1.0, "energy_j": 5.0}


def test_a_store_without_a_usable_trial_says_so(store):
    seal(store, "aa", state="failed")

    with pytest.raises(StudyError, match="no usable trial"):
        observations(store.root, settings=None, values=["step_s"])


def test_the_columns_of_a_store_without_a_usable_trial_are_not_an_empty_list(store):
    seal(store, "aa", state="failed")

    with pytest.raises(StudyError, match="no usable trial"):
        columns_of(store.root)


@pytest.mark.parametrize(("name", "factor"), [("energy_MJ", 1e6), ("energy_mJ", 1e-3), ("MS", 1e-3)])
def test_mega_is_not_milli(name, factor):
    assert base_factor(name) == factor


def test_a_figure_that_a_store_does_not_have_is_answered_with_those_it_has(store):
    seal(store, "aa", metrics={"step_s": 1.0})

    with pytest.raises(StudyError, match=r"No figure 'stpe_s'.*Did you mean 'step_s'"):
        observations(store.root, settings=["platform"], values=["stpe_s"])
    assert "step_s" in columns_of(store.root)


def test_when_and_where_a_trial_ran_come_from_its_record(store):
    facts = {"device": {"cpu": "Neoverse-N1"}}
    seal(store, "aa", metrics={"step_s": 1.0}, facts=facts, started_utc="1970-01-02T00:00:00.000+00:00")

    (row,) = observations(store.root, settings=["platform"], values=["step_s"])

    assert (row.device, started_s(row)) == ("Neoverse-N1", 86400.0)


def test_attempts_are_chosen_without_a_store():
    records = [draft("aa", state="failed"), draft("aa", state="ok", metrics={"step_s": 1.0})]

    assert usable_attempts(records, ["step_s"]) == [records[1]]
