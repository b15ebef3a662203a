"""The `ftrace` probe: what keeps it from tracing, and what it makes of raw files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from tare.base.host import Completed, Scope
from tare.kernel.parts.probes.ftrace import FAMILIES, Ftrace
from tare.kernel.tracing import tracefs
from tare.testing import FakeHost

RECORDING = Path(__file__).parents[3] / "recordings" / "trace-6.18"
MOUNTED = "30 20 0:12 / /sys/kernel/tracing rw - tracefs tracefs rw\n"
EVERYTHING = [f"events/{names[0]}" for family in FAMILIES.values() for names in family]


def kernel(events: Sequence[str], *, uid: str = "0", mounted: bool = True) -> FakeHost:
    """A host whose tracefs has these events."""

    def answer(argv: Sequence[str]) -> Completed | None:
        if "look" in argv:
            asked = argv[list(argv).index("look") + 2 :]
            return Completed(tuple(argv), 0, "\n".join(path for path in asked if path in events), "")
        return Completed(tuple(argv), 0, uid, "") if argv[0] == "id" else None

    files = {"/proc/filesystems": "nodev\tsysfs\nnodev\ttracefs\n", "/proc/self/mountinfo": MOUNTED if mounted else ""}
    return FakeHost(files=files, answer=answer)


def all_families() -> Ftrace:
    return Ftrace.model_validate({"families": list(FAMILIES)})


def test_a_kernel_with_all_events_has_no_obstacle():
    assert all_families().obstacles(kernel(EVERYTHING)) == []


def test_a_kernel_of_before_5_18_has_the_older_name():
    older = [path.replace("writeback_dirty_folio", "writeback_dirty_page") for path in EVERYTHING]

    assert Ftrace().obstacles(kernel(older)) == []


def test_an_absent_event_is_a_sentence_with_a_way_out():
    host = kernel([path for path in EVERYTHING if not path.startswith("events/exceptions")])

    first, second = map(str, all_families().obstacles(host))

    assert "exceptions:page_fault_user" in first
    assert "exceptions:page_fault_kernel" in second
    assert "perf probe" in first
    assert "leave faults out" in first


def test_both_names_of_an_event_are_named_where_neither_is_there():
    host = kernel([path for path in EVERYTHING if "dirty_folio" not in path])

    (sentence,) = map(str, Ftrace().obstacles(host))

    assert "writeback:writeback_dirty_folio or writeback:writeback_dirty_page" in sentence


def test_without_root_without_tracefs_and_without_a_mount_each_has_a_sentence():
    (not_root,) = map(str, Ftrace().obstacles(kernel(EVERYTHING, uid="1000")))
    (no_tracefs,) = map(str, Ftrace().obstacles(FakeHost(files={"/proc/filesystems": "nodev\tsysfs\n"})))
    refused = kernel([], mounted=False)
    refused.answer = lambda argv: Completed(tuple(argv), 0, "0", "") if argv[0] == "id" else None
    (no_mount,) = map(str, Ftrace().obstacles(refused))

    assert "only root may trace" in not_root
    assert "no tracefs" in no_tracefs
    assert "cannot be mounted" in no_mount


def test_where_tracefs_is_not_mounted_asking_mounts_it_for_nobody_else():
    host = kernel(EVERYTHING, mounted=False)

    assert Ftrace().obstacles(host) == []
    assert host.asked[-1][:2] == ("unshare", "--mount")


def test_a_study_names_families_by_a_plain_list_and_unknown_ones_are_refused():
    assert Ftrace.short == "families"
    with pytest.raises(ValidationError):
        Ftrace.model_validate({"families": ["everything"]})
    with pytest.raises(ValidationError):
        Ftrace.model_validate({"families": []})


def test_raw_files_become_tables_without_those_about_tasks(tmp_path: Path):
    found = {table.name: table.columns for table in Ftrace().tables(RECORDING)}

    assert {"writeback_start", "writeback_written", "writeback_dirty_folio", "page_writes"} <= found.keys()
    assert "task_rename" not in found
    assert "lost" not in found
    assert Ftrace().figures(found, steps=10)["trace_lost_events"] == 0


def test_events_that_the_kernel_counted_as_lost_are_a_table_and_a_figure(tmp_path: Path):
    folder = tmp_path / "raw"
    shutil.copytree(RECORDING, folder)
    meta = folder / "trace.json"
    meta.write_text(meta.read_text().replace('"lost": {"0": 0, "1": 0}', '"lost": {"0": 17, "1": 3}'))

    found = {table.name: table.columns for table in Ftrace().tables(folder)}

    assert found["lost"]["events"].tolist() == [17, 3]
    assert Ftrace().figures(found, None)["trace_lost_events"] == 20


def test_a_recording_that_was_cut_off_still_gives_its_events(tmp_path: Path):
    folder = tmp_path / "raw"
    shutil.copytree(RECORDING, folder)
    (folder / "trace.json").unlink()

    assert any(table.name == "writeback_start" for table in Ftrace().tables(folder))


def test_system_calls_are_those_of_the_workload_and_of_a_step():
    roles = np.array(["workload", "host", "workload", "tenant1"], dtype=object)

    found = Ftrace.model_validate({"families": ["syscalls"]}).figures({"sys_enter": {"role": roles}}, steps=4)

    assert (found["system_calls"], found["system_calls_step"]) == (2, 0.5)


def test_that_nothing_was_written_back_is_seen_and_not_missing():
    found = Ftrace().figures({}, None)

    assert (found["writeback_count"], found["written_pages"]) == (0, 0)
    assert "writeback_interval_s" not in found


def test_an_instance_is_called_after_its_maker_and_others_names_are_not_ours(tmp_path: Path):
    of_another_container = "tare-12-34-ftrace-7"  # its processes have numbers of their own
    for name in ("tare-12-34-ftrace", of_another_container, "tare-mine", "someone"):
        (tmp_path / "instances" / name).mkdir(parents=True)
    host = FakeHost(files={"/proc/self/mountinfo": f"30 20 0:12 / {tmp_path} rw - tracefs tracefs rw\n"})

    (found,) = tracefs.leftovers(host)

    assert (found.site, found.owner) == ("tare-12-34-ftrace", "12:34")
    tracefs.sweep(host, "someone")
    assert (tmp_path / "instances" / "someone").is_dir()
    tracefs.sweep(host, "tare-12-34-ftrace")
    assert not (tmp_path / "instances" / "tare-12-34-ftrace").exists()


def test_who_is_who_when_a_trace_begins():
    listed = "    1     1     0 systemd\n  900   900     1 python3\n  901   900     1 pool worker\n"
    listed += "   55    55     2 kworker/u8:0-loop0\n"
    files = {
        "/proc/self/mountinfo": "30 20 0:12 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "/sys/fs/cgroup/tare/t1/cgroup.events": "populated 1\n",
        "/sys/fs/cgroup/tare/t1/cgroup.threads": "900\n901\n",
    }
    host = FakeHost(files=files, answers={"ps": listed})
    scopes = [Scope(cgroups={"": "/sys/fs/cgroup/tare/t1"})]

    start = tracefs.snapshot(host, scopes)

    assert start.groups == (("/tare/t1", "workload"),)
    assert set(start.tasks) == {
        (1, "systemd", "host"), (900, "python3", "workload"), (901, "pool worker", "workload"),
        (55, "kworker/u8:0", "host"),
    }  # fmt: skip
    assert [(pid, role) for _, pid, role in tracefs.sightings(host, scopes, {900})] == [(901, "workload")]
