from __future__ import annotations

from some_records import draft
from tare.records.model import (
    Record,
    State,
    StoreTrials,
    TrialRow,
    counted_attempts,
    grouped,
    has_most_of,
    rows_of_stores,
    usable_trials,
    without_copies,
)


def attempts(trial: str, *states: State) -> list[Record]:
    return [draft(trial, attempt=number, state=state) for number, state in enumerate(states, start=1)]


def chosen(*records: Record) -> list[tuple[str, int]]:
    return [(record.trial, record.attempt) for record in counted_attempts(records)]


def test_the_newest_attempt_that_is_usable_speaks_for_a_trial():
    assert chosen(*attempts("a", "invalid", "ok", "suspect", "failed")) == [("a", 3)]


def test_where_none_is_usable_the_newest_speaks():
    records = attempts("a", "invalid", "timeout", "failed")
    assert chosen(*records) == [("a", 3)]
    assert usable_trials(records) == []


def test_trials_keep_their_order_and_speak_each_for_itself():
    assert chosen(*attempts("b", "ok"), *attempts("a", "ok", "invalid")) == [("b", 1), ("a", 1)]


def test_who_asks_says_what_usable_is():
    records = [draft("a", attempt=1, state="ok", metrics={"step_s": 1.0}), draft("a", attempt=2, state="ok")]
    assert [each.attempt for each in usable_trials(records, lambda record: "step_s" in record.metrics)] == [1]


def test_of_usable_attempts_the_one_with_most_of_the_figures_counts():
    records = [
        draft("a", attempt=1, state="ok", metrics={"step_s": 1.0, "energy_j": 2.0}),
        draft("a", attempt=2, state="ok", metrics={"step_s": 1.1}),
        draft("a", attempt=3, state="failed", metrics={"step_s": 1.1, "energy_j": 2.0}),
    ]
    assert [each.attempt for each in usable_trials(records, has_most_of(["step_s"]))] == [2]
    assert [each.attempt for each in usable_trials(records, has_most_of(["step_s", "energy_j"]))] == [1]


def test_a_phase_that_has_another_name_since_is_read_by_its_new_one():
    kept = draft("a", phases={"open": 2.0, "open.boot": 1.5, "open.furnish": 0.5}).as_json()
    assert Record.from_json(kept).phases == {"open": 2.0, "open.boot": 1.5, "open.prepare": 0.5}


def test_groups_and_what_is_in_them_keep_their_order():
    assert grouped([3, 1, 4, 1, 5, 9], lambda number: number % 2) == {1: [3, 1, 1, 5, 9], 0: [4]}


def run_on(name: str, boot: str, *trials: str) -> list[Record]:
    facts = {"device": {"board": "Orin", "machine": "aarch64", "boot_id": boot}}
    settings = {"platform": "bare", "device": name} if name else {"platform": "bare"}
    return [draft(trial, settings=settings, facts=facts, started_utc="2026-01-01T00:00:00Z") for trial in trials]


def test_a_row_of_several_stores_knows_its_device_its_block_and_its_store():
    rows = rows_of_stores([StoreTrials("one", run_on("nx1", "x", "a")), StoreTrials("two", run_on("", "y", "a"))])

    assert [(row.device, row.device_type, row.block_id, row.store) for row in rows] == [
        ("nx1", "Orin aarch64", "0:0", 0),
        ("two", "Orin aarch64", "1:0", 1),
    ]
    assert [dict(row.settings) for row in rows] == [{"platform": "bare"}] * 2  # the device stands beside them


def test_stores_of_one_boot_are_of_one_device():
    rows = rows_of_stores([StoreTrials("one", run_on("", "x", "a")), StoreTrials("two", run_on("", "x", "b"))])
    assert [row.device for row in rows] == ["one", "one"]


def test_a_copy_of_a_store_adds_nothing():
    first, second = run_on("nx1", "x", "a", "b"), run_on("nx1", "x", "b", "c")
    assert [[each.trial for each in left] for left in without_copies([first, second])] == [["a", "b"], ["c"]]


def test_a_record_without_a_start_is_never_taken_for_a_copy():
    unknown = [draft("a", attempt=1)]
    assert without_copies([unknown, unknown]) == [unknown, unknown]


def test_a_row_is_a_record_with_a_place():
    record = draft("a", attempt=2, state="suspect", metrics={"step_s": 1.0})
    row = TrialRow.of(record, group="lenet5", block_id="3/1")

    assert isinstance(row, Record)
    assert {name: getattr(row, name) for name in Record.__dataclass_fields__} == {
        name: getattr(record, name) for name in Record.__dataclass_fields__
    }
    assert (row.group, row.block_id) == ("lenet5", "3/1")


def test_a_foreign_row_counts_and_keeps_its_block_if_it_has_one():
    row = TrialRow.foreign({"mode": 1.0}, {"ms": 5.0}, "row 1", block="12")
    assert (usable_trials([row]), row.block, row.block_id, row.device) == ([row], 12, "12", None)
    assert TrialRow.foreign({}, {}, "row 2").block_id is None


def test_repeats_are_left_out_on_request():
    records = [draft("a", state="ok"), draft("b", state="ok", twin=1)]
    assert [each.trial for each in usable_trials(records)] == ["a", "b"]
    assert [each.trial for each in usable_trials(records, repeats=False)] == ["a"]
