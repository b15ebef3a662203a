"""What the machine tests of a fleet count as an attempt: whoever runs a trial twice must not pass them."""

from __future__ import annotations

from typing import Any

import pytest

from fleet_runs import told_attempts
from tare.records.model import Record


def records(*states: Any) -> list[Record]:
    return [
        Record("a", number, "s", 0, 0, 0, {"device": "one"}, state, start_ns=1, end_ns=2)
        for number, state in enumerate(states, 1)
    ]


@pytest.mark.parametrize(
    ("states", "told"),
    [
        (["ok"], ["ok"]),
        (["ok", "ok"], ["ok", "ok"]),
        (["suspect", "ok"], ["ok", "ok"]),
        (["invalid", "ok"], ["ok"]),
        (["invalid", "invalid", "invalid"], ["ok"]),
        (["interrupted", "invalid", "ok"], ["interrupted", "ok"]),
        (["interrupted", "interrupted"], ["interrupted", "interrupted"]),
        (["ok", "invalid"], ["ok", "ok"]),
    ],
)
def test_only_an_invalid_attempt_may_be_run_again_uncounted(states, told):
    assert told_attempts(records(*states)) == {"one": told}
