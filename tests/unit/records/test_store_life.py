"""What goes into a store comes out of it, attempt by attempt."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from some_records import MARKS, draft, ended, run_one
from tare.base.errors import StoreError, StudyError
from tare.records.spool import SpoolWriter
from tare.records.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store", {"study": "weigh", "repeat": 3}, "study: weigh\r\nrepeat: 3 # µ\n")


def test_a_sealed_trial_comes_back_as_it_was(store: Store) -> None:
    sealed = run_one(store)

    with Store.open(store.root) as again:
        assert again.records() == [sealed]
        assert again.problems == []
        readings = again.readings("aaaa", 1)
        assert {name: (list(t), list(v)) for name, (t, v) in readings.items()} == {
            "cpu.busy_s": ([110, 210], [0.5, 0.75]),
            "memory.used_bytes": ([111], [4096.0]),  # the NaN is absent
        }
        marks = again.marks("aaaa", 1)
        assert list(zip(*(marks[key].tolist() for key in ("t_ns", "name", "edge", "step")), strict=True)) == MARKS
        assert again.output("aaaa", 1) == ("loss 0.1\r\n", "a warning\n")
        assert [(c["name"], c["unit"], c["kind"], c["about"]) for c in again.channels("aaaa", 1)] == [
            ("cpu.busy_s", "s", "counter", "time not idle"),
            ("memory.used_bytes", "bytes", "gauge", ""),
        ]


def test_the_study_comes_back_as_data_and_as_it_was_written(store: Store) -> None:
    with Store.open(store.root) as again:
        assert again.study == {"study": "weigh", "repeat": 3}
        assert again.text() == "study: weigh\r\nrepeat: 3 # µ\n"


def test_a_planned_trial_runs_and_ends(store: Store) -> None:
    rows = [{"trial": t, "block": 0, "position": p, "twin": 0, "settings": {}} for p, t in enumerate(("bbbb", "aaaa"))]
    store.plan(rows)
    assert store.states() == {"bbbb": "planned", "aaaa": "planned"}

    writer = store.begin(draft())
    assert store.states() == {"bbbb": "planned", "aaaa": "running"}

    writer.seal(ended(draft(), "suspect"), [], "", "")
    assert list(store.states().items()) == [("bbbb", "planned"), ("aaaa", "suspect")]
    assert store.planned() == rows


def test_a_new_plan_replaces_the_old_one_and_no_attempt(store: Store) -> None:
    run_one(store, "aaaa")
    store.plan([draft("aaaa"), draft("bbbb")])
    store.plan([draft("cccc")])
    assert store.states() == {"cccc": "planned", "aaaa": "ok"}


def test_a_rerun_is_a_new_attempt_and_replaces_nothing(store: Store) -> None:
    first = run_one(store, state="invalid")
    second = run_one(store)

    assert [record.attempt for record in (first, second)] == [1, 2]
    assert store.records() == [first, second]
    assert store.states() == {"aaaa": "ok"}
    assert store.find("aa") == second
    assert store.find("aaaa.1") == first


def test_records_come_in_the_order_of_the_plan_with_the_newest_attempt_last(store: Store) -> None:
    run_one(store, "cccc", block=1, position=0)
    run_one(store, "bbbb", block=0, position=1, state="invalid")
    run_one(store, "aaaa", block=0, position=0)
    run_one(store, "bbbb", block=0, position=1)

    found = [(record.trial, record.attempt) for record in store.records()]
    assert found == [("aaaa", 1), ("bbbb", 1), ("bbbb", 2), ("cccc", 1)]


def test_a_trial_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    run_one(store, "ab12")
    run_one(store, "ab34")

    assert store.find("ab3").trial == "ab34"
    with pytest.raises(StudyError, match="2 trials begin with 'ab': ab12, ab34"):
        store.find("ab")
    with pytest.raises(StudyError, match=r"no trial begins with 'x'\. Trials here: ab12, ab34"):
        store.find("x")


def test_readings_can_be_read_while_the_trial_runs(store: Store) -> None:
    writer = store.begin(draft())
    with SpoolWriter(writer.spool) as spool, Store.open(store.root) as reader:
        assert reader.readings("aaaa", 1) == {}
        spool.tick(5, [(5, "cpu.busy_s", 1.5)])
        t_ns, value = reader.readings("aaaa", 1)["cpu.busy_s"]
        assert (t_ns.tolist(), value.tolist()) == ([5], [1.5])
        assert [channel["name"] for channel in reader.channels("aaaa", 1)] == ["cpu.busy_s"]


def test_of_a_channels_values_as_many_digits_are_kept_as_a_sensor_may_have(store: Store) -> None:
    writer = store.begin(draft())
    with SpoolWriter(writer.spool) as spool:
        for t_ns, watts in ((5, 1 / 3), (15, 2 / 3)):
            spool.tick(t_ns, [(t_ns, "board.power_w", watts)])
    writer.seal(ended(draft()), [], "", "")

    (channel,) = store.channels("aaaa", 1)
    quantiles = channel["quantiles"]
    assert (channel["count"], quantiles[0], quantiles[20], quantiles[40]) == (2, 0.333333, 0.5, 0.666667)


def test_a_reader_sees_what_a_writer_beside_it_seals(store: Store) -> None:
    with Store.open(store.root) as reader:
        assert reader.records() == []
        sealed = run_one(store)
        assert reader.records() == [sealed]
        assert reader.states() == {"aaaa": "ok"}


def test_a_figure_that_is_no_number_is_left_out_and_noted(store: Store) -> None:
    writer = store.begin(draft())
    facts = {"outcome": {"loss": math.nan, "steps": 3, "curve": [1.0, math.inf]}}
    record = writer.seal(replace(ended(draft()), metrics={"wall_s": math.inf, "cpu_s": 1.0}, facts=facts), [], "", "")

    assert record.metrics == {"cpu_s": 1.0}
    assert record.facts == {"outcome": {"steps": 3, "curve": [1.0, None]}}
    assert (*map(str, record.notes),) == (
        "left out, because it is not a finite number: metrics.wall_s, facts.outcome.loss, facts.outcome.curve.1.",
    )
    assert Store.open(store.root).records() == [record]


def test_what_is_no_plain_data_is_refused_by_name(store: Store) -> None:
    with pytest.raises(StoreError, match="a PosixPath is not plain data"):
        store.begin(draft(facts={"where": Path("/")}))
    assert store.states() == {}


def test_lost_marks_are_counted(store: Store) -> None:
    store.begin(draft()).seal(ended(draft()), MARKS, "", "", lost_marks=7)
    assert Store.open(store.root).lost_marks("aaaa", 1) == 7


def test_the_edges_of_marks_may_be_numbers_but_nothing_else(store: Store) -> None:
    writer = store.begin(draft())
    with pytest.raises(StoreError, match="a mark's edge is one of begin, end, point, not 3"):
        writer.seal(ended(draft()), [(1, "step", 3, 0)], "", "")

    writer.seal(ended(draft()), [(1, "step", 0, 0), (2, "step", 1, 0), (3, "ready", 2, -1)], "", "")
    assert store.marks("aaaa", 1)["edge"].tolist() == ["begin", "end", "point"]


def test_an_attempt_is_sealed_once_with_its_own_trial_and_an_end(store: Store) -> None:
    writer = store.begin(draft())
    with pytest.raises(StoreError, match="this writer is for trial aaaa, not for bbbb"):
        writer.seal(ended(draft("bbbb")), [], "", "")
    with pytest.raises(StoreError, match="this one is 'running'"):
        writer.seal(draft(), [], "", "")
    writer.seal(ended(draft()), [], "", "")
    with pytest.raises(StoreError, match="sealed already"):
        writer.seal(ended(draft()), [], "", "")


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a/b", "a b", "-rf", "x" * 65, "a\n"])
def test_a_trial_id_cannot_leave_its_folder(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="cannot be a trial's id"):
        store.begin(draft(name))


def test_a_store_works_at_a_path_with_odd_characters(tmp_path: Path) -> None:
    with Store.create(tmp_path / "a [1] 'b'* ?c=%20#d é", {}, "") as store:
        sealed = run_one(store)
    with Store.open(store.root) as again:
        assert again.records() == [sealed]
        assert sorted(again.readings("aaaa", 1)) == ["cpu.busy_s", "memory.used_bytes"]


def test_a_store_to_be_read_is_not_written(store: Store) -> None:
    with Store.open(store.root) as reader, pytest.raises(StoreError, match="opened to be read"):
        reader.begin(draft())


def test_the_sampler_need_not_load_numpy_pydantic_or_duckdb(store: Store) -> None:
    code = "import sys, tare.records.spool; print([m for m in ('numpy', 'pydantic', 'duckdb') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_reading_records_does_not_load_duckdb(store: Store) -> None:
    run_one(store)
    code = (
        "import sys; from pathlib import Path; from tare.records.store import Store\n"
        "assert len(Store.open(Path(sys.argv[1])).records()) == 1\n"
        "print('duckdb' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code, str(store.root)], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"
