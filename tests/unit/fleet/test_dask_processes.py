"""How workers are shared out over processes."""

from __future__ import annotations

import pytest

from tare.fleet.dask_processes import PER_HOST, groups


@pytest.mark.parametrize(
    ("devices", "processes"), [(1, 1), (PER_HOST, 1), (PER_HOST + 1, 2), (1000, -(-1000 // PER_HOST))]
)
def test_few_processes_hold_all_workers_once_and_about_as_many_each(devices, processes):
    names = [f"dev-{number}" for number in range(devices)]
    shared = groups(names)
    assert len(shared) == processes
    assert sorted(name for group in shared for name in group) == sorted(names)
    assert max(map(len, shared)) - min(map(len, shared)) <= 1
    assert max(map(len, shared)) <= PER_HOST


def test_no_devices_need_no_process():
    assert groups([]) == []
