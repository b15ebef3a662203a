"""Which counters a CPU has, on devices that are not here: hybrid cores, few counters, none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tare.kernel.tracing import perf_events
from tare.kernel.tracing.perf_events import Event
from tare.testing import FakeHost


class Cpu:
    """A CPU that can count some events, so many of them at once."""

    def __init__(self, can: set[tuple[int, int]], at_once: int) -> None:
        self._can, self._at_once = can, at_once
        self._open: dict[int, int] = {}

    def open_event(self, event: Event, cpu: int, leader: int = -1) -> int:
        if (event.type, event.config) not in self._can:
            raise OSError(errno.ENOENT, "no such event")
        if sum(1 for of in self._open.values() if of == leader) + 1 >= self._at_once and leader >= 0:
            raise OSError(errno.EINVAL, "too many")
        descriptor = os.open(os.devnull, os.O_RDONLY)
        self._open = {number: of for number, of in self._open.items() if _is_open(number)}
        self._open[descriptor] = leader
        return descriptor


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


GENERIC = {(0, 0), (0, 1), (0, 3), (3, 0), (3, 1 << 8)}


def groups_on(monkeypatch: pytest.MonkeyPatch, can: set[tuple[int, int]], at_once: int, root: Path, prefix: str = ""):
    monkeypatch.setattr(perf_events, "open_event", Cpu(can, at_once).open_event)
    return [[event.name for event in group] for group in perf_events.hardware_groups(0, "cpu", prefix, root)]


def test_a_cpu_with_room_counts_everything_in_one_group(monkeypatch, tmp_path):
    found = groups_on(monkeypatch, GENERIC, 8, tmp_path, "cpu_core/")
    assert found == [["cpu_core/cycles", "cpu_core/instructions", "cpu_core/cache-misses", "cpu_core/loads",
                      "cpu_core/stores"]]  # fmt: skip


def test_a_cpu_with_two_counters_counts_in_turns(monkeypatch, tmp_path):
    found = groups_on(monkeypatch, GENERIC, 2, tmp_path)
    assert found == [["cycles", "instructions"], ["cache-misses", "loads"], ["stores"]]


def test_a_guest_without_counters_has_no_group(monkeypatch, tmp_path):
    assert groups_on(monkeypatch, set(), 8, tmp_path) == []


def test_stores_come_from_the_drivers_own_list_where_the_kernel_has_no_name_for_them(monkeypatch, tmp_path):
    unit = tmp_path / "cpu"
    (unit / "events").mkdir(parents=True)
    (unit / "format").mkdir()
    (unit / "type").write_text("8\n")
    (unit / "events" / "st_retired").write_text("event=0x007\n")
    (unit / "format" / "event").write_text("config:0-15\n")
    assert groups_on(monkeypatch, {(0, 0), (8, 7)}, 8, tmp_path) == [["cycles", "stores"]]


def test_fields_go_where_the_driver_says():
    formats = {"event": "config:0-7\n", "umask": "config:8-15\n", "any": "config:21\n", "wide": "config:0-7,32-35\n"}
    assert perf_events.config_of("event=0xd0,umask=0x82\n", formats) == 0x82D0
    assert perf_events.config_of("event=0x3c,any", formats) == 0x20003C
    with pytest.raises(ValueError, match="wide"):
        perf_events.config_of("wide=1", formats)


def test_kinds_of_cores_are_told_apart_only_where_there_are_several(tmp_path):
    for name in ("cpu_core", "cpu_atom", "software"):
        (tmp_path / name).mkdir()
    host = FakeHost()
    host.files = {str(tmp_path / "cpu_core" / "cpus"): "0-15\n", str(tmp_path / "cpu_atom" / "cpus"): "16-19\n"}
    assert perf_events.core_types(host, tmp_path) == {
        "cpu_atom": frozenset(range(16, 20)),
        "cpu_core": frozenset(range(16)),
    }
    host.files.popitem()
    assert perf_events.core_types(host, tmp_path) == {}


def test_block_events_that_a_kernel_lacks_are_left_out():
    host = FakeHost()
    host.files = {"/t/events/block/block_rq_issue/id": "1023\n"}
    assert [event.config for event in perf_events.block_events(host, Path("/t"))] == [1023]
    assert perf_events.block_events(host, None) == []
