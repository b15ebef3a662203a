from __future__ import annotations

from some_records import draft
from tare.records.attempts import newest_attempts, newest_usable
from tare.records.model import Record, State


def attempts(trial: str, *states: State) -> list[Record]:
    return [draft(trial, attempt=number, state=state) for number, state in enumerate(states, start=1)]


def chosen(*records: Record) -> list[tuple[str, int]]:
    return [(record.trial, record.attempt) for record in newest_attempts(records)]


def test_the_newest_attempt_that_is_usable_speaks_for_a_trial():
    assert chosen(*attempts("a", "invalid", "ok", "suspect", "failed")) == [("a", 3)]


def test_where_none_is_usable_the_newest_speaks():
    records = attempts("a", "invalid", "timeout", "failed")
    assert chosen(*records) == [("a", 3)]
    assert newest_usable(records) == []


def test_trials_keep_their_order_and_speak_each_for_itself():
    assert chosen(*attempts("b", "ok"), *attempts("a", "ok", "invalid")) == [("b", 1), ("a", 1)]


def test_who_asks_says_what_usable_is():
    records = [draft("a", attempt=1, state="ok", metrics={"step_s": 1.0}), draft("a", attempt=2, state="ok")]
    assert [each.attempt for each in newest_usable(records, lambda record: "step_s" in record.metrics)] == [1]
