from __future__ import annotations

import json
import mmap
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from tare.base.errors import ControlNotHeld, TrialError
from tare.base.host import LocalHost
from tare.drivers.guests.channel import GuestClock
from tare.drivers.storage import residency as residency_module
from tare.drivers.storage.residency import Residency, open_files, residency
from tare.parts.controls import page_cache
from tare.parts.controls.page_cache import PageCache
from tare.parts.protocols import TenantPlace
from tare.testing import FakeHost, FakeInnerHost
from tare_inside.programs import cold_epochs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "train").mkdir(parents=True)
    for number in range(4):
        (folder / "train" / f"{number}.bin").write_bytes(os.urandom(400_000))
    (folder / "empty").write_bytes(b"")
    return folder


def share(*paths: Path) -> float:
    total = Residency()
    for descriptor in open_files(paths):
        seen = residency(descriptor)
        assert seen is not None
        total += seen
    assert total.share is not None
    return total.share


def write(control: PageCache, *inputs: Path, host: LocalHost | None = None) -> None:
    control.write(host or LocalHost(), control.target(LocalHost(), inputs))


def test_cold_takes_the_whole_data_set_out_of_memory_also_what_was_not_yet_on_disk(data: Path):
    assert share(data) == 1.0
    write(PageCache(state="cold"), data)
    assert share(data) == 0.0


def test_warm_puts_the_whole_data_set_into_memory(data: Path):
    write(PageCache(state="cold"), data)
    write(PageCache(state="warm"), data)
    assert share(data) == 1.0


def test_cold_leaves_other_files_where_they_are(data: Path, tmp_path: Path):
    (tmp_path / "other.bin").write_bytes(os.urandom(400_000))
    write(PageCache(state="cold"), data)
    assert share(tmp_path / "other.bin") == 1.0


def test_the_plain_value_in_a_study_is_the_state():
    assert PageCache.short == "state"
    with pytest.raises(ValidationError, match="'cold', 'warm' or 'cold_every_epoch'"):
        PageCache(state="tepid")  # type: ignore[arg-type]


def test_it_acts_on_what_the_workload_reads_unless_it_is_told_otherwise():
    assert PageCache(state="cold").target(LocalHost(), [Path("/data")]) == {"state": "cold", "paths": ["/data"]}
    named = PageCache(state="cold", paths=(Path("/mine"),))
    assert named.target(LocalHost(), [Path("/data")]) == {"state": "cold", "paths": ["/mine"]}


def test_paths_are_absolute():
    with pytest.raises(ValidationError, match="not absolute"):
        PageCache(state="cold", paths=(Path("data"),))


def test_it_has_no_inverse():
    assert PageCache(state="cold").read(LocalHost()) is None


def test_it_looks_for_the_files_under_the_hosts_root(tmp_path: Path, data: Path):
    control = PageCache(state="cold")
    control.write(LocalHost(root=tmp_path), control.target(LocalHost(), [Path("/data")]))
    assert share(data) == 0.0


def test_files_that_cannot_leave_memory_are_said_with_their_share(monkeypatch: pytest.MonkeyPatch, data: Path):
    with (data / "train" / "0.bin").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        total = sum(view[:: mmap.PAGESIZE])  # mapped and touched: the kernel keeps these pages
        with pytest.raises(
            ControlNotHeld, match=r"requested cold, the device reports 2\d\.\d% of the data set's 1.5 MiB"
        ):
            write(PageCache(state="cold"), data)
        assert total >= 0


def test_the_whole_cache_is_dropped_only_when_asked(monkeypatch: pytest.MonkeyPatch, data: Path):
    written: list[tuple[str, str]] = []

    class Watched(LocalHost):
        def write(self, path: object, text: str) -> None:
            written.append((str(path), text))

    monkeypatch.setattr(page_cache, "_drop", lambda files: None)
    for drop_all, wanted in ((False, []), (True, [("/proc/sys/vm/drop_caches", "1")])):
        with pytest.raises(ControlNotHeld, match=r"100\.0%"):
            write(PageCache(state="cold", drop_all=drop_all), data, host=Watched())
        assert written == wanted


def test_a_data_set_larger_than_memory_is_not_read_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal:  2000 kB\nMemAvailable:  1024 kB\n")
    write(PageCache(state="cold"), data)
    monkeypatch.setattr(page_cache, "_read_through", lambda files: pytest.fail("it was read"))
    control = PageCache(state="warm")
    with pytest.raises(
        ControlNotHeld, match=r"requested warm.*1\.5 MiB to be read in, and 1\.0 MiB of memory available"
    ):
        control.write(LocalHost(root=tmp_path), control.target(LocalHost(), [Path("/data")]))


def test_reading_that_leaves_too_little_in_memory_is_said(monkeypatch: pytest.MonkeyPatch, data: Path):
    write(PageCache(state="cold"), data)
    monkeypatch.setattr(page_cache, "_read_through", lambda files: None)
    with pytest.raises(ControlNotHeld, match=r"0\.0% of the data set's 1\.5 MiB in the page cache after it was read"):
        write(PageCache(state="warm"), data)


def test_what_cannot_be_checked_is_not_claimed(monkeypatch: pytest.MonkeyPatch, data: Path):
    monkeypatch.setattr(residency_module, "_CACHESTAT", 100_000)
    monkeypatch.setattr(residency_module, "_may_know", lambda descriptor: False)
    with pytest.raises(TrialError, match=r"does not report to this user how much of .*bin is in memory"):
        write(PageCache(state="cold"), data)


def test_nothing_to_act_on_is_said(tmp_path: Path, data: Path):
    with pytest.raises(TrialError, match="names no files"):
        write(PageCache(state="cold"))
    with pytest.raises(TrialError, match="is not there"):
        write(PageCache(state="cold"), tmp_path / "missing")
    (tmp_path / "hollow").mkdir()
    with pytest.raises(TrialError, match="nothing to read"):
        write(PageCache(state="cold"), tmp_path / "hollow")


def test_it_works_only_on_the_device_itself():
    assert PageCache(state="cold").obstacles(LocalHost()) == []
    (sentence,) = map(str, PageCache(state="cold").obstacles(FakeHost(name="guest")))
    assert "not of guest" in sentence


def test_dropping_everything_needs_root(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (sentence,) = map(str, PageCache(state="cold", drop_all=True).obstacles(LocalHost()))
    assert "needs root" in sentence


def test_every_epoch_is_left_to_the_workload_and_the_order_lies_in_its_workdir(tmp_path: Path, data: Path):
    control = PageCache(state="cold_every_epoch")
    write(control, data)
    assert share(data) == 0.0

    control.settle(LocalHost(), [TenantPlace(FakeHost(), tmp_path, (data,))])

    assert json.loads((tmp_path / cold_epochs.ORDER).read_text()) == {"paths": [str(data)]}


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_a_state_at_the_start_of_a_trial_leaves_no_order(tmp_path: Path, data: Path, state):
    PageCache(state=state).settle(LocalHost(), [TenantPlace(FakeHost(), tmp_path, (data,))])
    assert not (tmp_path / cold_epochs.ORDER).exists()


def test_a_guest_whose_data_are_cached_on_the_device_too_is_refused(tmp_path: Path, data: Path):
    guest = FakeInnerHost(guest_clock=GuestClock())
    with pytest.raises(TrialError, match="virtual machine"):
        PageCache(state="cold_every_epoch").settle(LocalHost(), [TenantPlace(guest, tmp_path, (data,))])
