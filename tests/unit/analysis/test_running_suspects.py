"""Who is suspected of a program that runs, by thresholds: what is far from a limit is nobody's cause."""

from __future__ import annotations

from typing import Any

import pytest

from tare.analysis.why.running import suspects

QUIET: dict[str, Any] = {
    "seconds": 30.0,
    "spent": {"user": 25.0, "system": 1.0, "queue": 0.3, "throttled": 0.0},
    "counted": {"nr_throttled": 0.0, "read_bytes": 4096.0, "wchar": 9000.0, "major_faults": 2.0, "refaults": 0.0,
                "limit_hits": 0.0},
    "facts": {"threads": 4, "cores": 2, "cgroup": {"cpu_quota_cores": 1.5, "memory_limit_bytes": 1 << 30},
              "memory": 9e8, "limits": {"nofile": [1024, 4096]}, "open_files": 40, "file_systems": {"ext4": 3},
              "tasks": 5.0, "tasks_limit": 100.0, "variables": {"CUDA_LAUNCH_BLOCKING": "0", "URL": "hmac:1:2"},
              "process": {"Speculation_Store_Bypass": "thread vulnerable"}},
}  # fmt: skip
COSTLY = {"CUDA_LAUNCH_BLOCKING": "each kernel is waited for"}


def changed(part: str, **values: Any) -> dict[str, Any]:
    return {**QUIET, part: {**QUIET[part], **values}}


def test_what_is_far_from_its_limits_is_not_suspected_of_anything() -> None:
    assert suspects(QUIET, COSTLY) == []


@pytest.mark.parametrize(
    ("part", "values", "name"),
    [
        ("spent", {"queue": 20.0}, "the wait for a core"),
        ("counted", {"refaults": 30_000.0}, "the memory limit"),
        ("counted", {"limit_hits": 9.0}, "the memory limit"),
        ("counted", {"read_bytes": 3e9}, "reads from a disk"),
        ("counted", {"wchar": 3e9}, "what it writes"),
        ("facts", {"open_files": 900}, "the limit of open files"),
        ("facts", {"tasks": 99.0}, "the limit of processes"),
        ("facts", {"file_systems": {"fuse.sshfs": 1}}, "the file system of its files"),
        ("facts", {"variables": {"CUDA_LAUNCH_BLOCKING": "1"}}, "CUDA_LAUNCH_BLOCKING"),
        ("facts", {"gpus": {"H200": 0.2}}, "a GPU that waits"),
        ("facts", {"process": {"Speculation_Store_Bypass": "thread force mitigated"}},
         "the speculative store bypass mitigation"),
    ],
)  # fmt: skip
def test_each_threshold_names_its_own(part: str, values: dict[str, Any], name: str) -> None:
    found = suspects(changed(part, **values), COSTLY)

    assert [each.name for each in found] == [name]
    assert found[0].change


def test_the_quota_comes_before_the_threads_that_use_it_up_and_is_no_wait_for_a_core() -> None:
    seen = changed("spent", throttled=60.0, queue=24.0) | {
        "counted": {**QUIET["counted"], "nr_throttled": 240.0},
        "facts": {**QUIET["facts"], "threads": 24},
    }
    quota, threads = suspects(seen, COSTLY)

    assert quota.name == "the CPU quota" and quota.share == pytest.approx(0.8)
    assert quota.evidence == "a quota of 1.5 cores stopped it in 240 periods, at most 80% of the time."
    assert threads.name == "the number of threads" and threads.change.startswith("-e OMP_NUM_THREADS=1,")


def test_what_nobody_could_read_is_not_suspected() -> None:
    facts: dict[str, Any] = {
        "threads": 1,
        "cores": 2,
        "open_files": None,
        "variables": None,
        "file_systems": {},
        "limits": {},
    }

    assert suspects({"seconds": 1.0, "spent": {}, "counted": {}, "facts": facts}, COSTLY) == []


def test_the_stops_of_a_quota_are_no_wait_for_a_core_also_where_they_are_part_of_the_queue() -> None:
    # Of 50 s that its threads ran or were ready, the quota stopped them for 40.
    seen = changed("spent", throttled=60.0, queue=41.0, user=8.0) | {
        "counted": {**QUIET["counted"], "nr_throttled": 240.0}
    }

    assert [each.name for each in suspects(seen, COSTLY)] == ["the CPU quota"]


@pytest.mark.parametrize("value", ["0", "", "false", "No", "OFF"])
def test_a_variable_that_is_switched_off_is_not_suspected(value: str) -> None:
    assert suspects(changed("facts", variables={"CUDA_LAUNCH_BLOCKING": value}), COSTLY) == []


def test_a_mitigation_of_the_whole_device_is_not_of_this_process() -> None:
    assert suspects(changed("facts", process={"Speculation_Store_Bypass": "globally mitigated"}), COSTLY) == []
