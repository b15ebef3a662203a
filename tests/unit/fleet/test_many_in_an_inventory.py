"""Inventories of fleets as large as we say that they may be."""

from __future__ import annotations

import pytest

from tare.base.errors import StudyError
from tare.fleet.inventory import MOST_DEVICES, parse_inventory


def entries(count: int) -> str:
    rows = (
        f"- {{name: dev-{n}, address: 10.1.{n // 250}.{n % 250}, user: root, port: 22, type: orin, tags: [lab, a]}}\n"
        for n in range(count)
    )
    return "devices:\n" + "".join(rows)


def test_hundreds_of_devices_with_all_that_is_said_of_them_are_read():
    assert len(parse_inventory(entries(500)).devices) == 500


def test_more_than_there_may_be_are_refused():
    with pytest.raises(StudyError):
        parse_inventory("devices:\n" + "".join(f"- {{name: d{n}, address: a{n}}}\n" for n in range(MOST_DEVICES + 1)))
