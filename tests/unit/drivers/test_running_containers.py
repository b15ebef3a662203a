"""What is read of a container that runs: what the kernel counted, and the line that makes it again."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from tare.drivers.containers.running import Target, _counts, _grown, line_of
from tare.testing import FakeHost


def stats(**ticks: int) -> dict[str, str]:
    """The files of processes that used so many ticks of the CPU."""
    return {
        f"/proc/{pid.strip('p')}/stat": f"1 (a b) S {' '.join(['0'] * 10)} {count} 0 0 0"
        for pid, count in ticks.items()
    }


def test_a_process_that_ends_takes_nothing_away_from_what_the_others_used() -> None:
    before = _counts(FakeHost(files=stats(p900001=100, p900002=5000)), [900001, 900002], {})
    after = _counts(FakeHost(files=stats(p900001=300, p900003=50)), [900001, 900003], {})

    assert _grown(before, after)["user_s"] == pytest.approx(2.5)


def test_of_a_container_what_its_ended_processes_used_counts_as_well() -> None:
    first = {**stats(p900001=100), "/cg/cpu.stat": "usage_usec 9\nuser_usec 1000000\nsystem_usec 500000\n"}
    second = {**stats(p900001=110), "/cg/cpu.stat": "usage_usec 9\nuser_usec 9000000\nsystem_usec 1500000\n"}
    before, after = (_counts(FakeHost(files=files), [900001], {"": "/cg"}) for files in (first, second))
    grown = _grown(before, after)

    assert grown["user_s"] == pytest.approx(8.0) and grown["system_s"] == pytest.approx(1.0)


def line(host: dict[str, Any], **config: Any) -> str:
    image = {"Entrypoint": config.pop("of_image", None), "Cmd": None}
    container = {"Config": {"Image": "app:1", **config}, "HostConfig": host}
    return shlex.join(line_of(Target(1, "container a", "--container a", container, "docker", image)))


def test_the_line_of_a_container_has_all_that_may_cost() -> None:
    host = {
        "Privileged": False, "CapAdd": ["SYS_NICE"], "PidsLimit": 64, "NetworkMode": "host",
        "SecurityOpt": ["no-new-privileges", 'seccomp={"defaultAction":"SCMP_ACT_ALLOW"}'],
        "BlkioDeviceReadBps": [{"Path": "/dev/sda", "Rate": 1048576}],
        "LogConfig": {"Type": "splunk", "Config": {"splunk-token": "canary", "mode": "blocking"}},
        "DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]}],
    }  # fmt: skip
    made = line(host)

    assert "canary" not in made
    for option in (
        "--cap-add SYS_NICE", "--pids-limit 64", "--network host", "--security-opt no-new-privileges", "--gpus all",
        "--security-opt seccomp=PROFILE.json", "--device-read-bps /dev/sda:1048576", "--log-driver splunk",
        "--log-opt mode=blocking", "--log-opt splunk-token=hmac:",
    ):  # fmt: skip
        assert option in made


def test_what_is_as_usual_is_not_in_the_line() -> None:
    usual = {
        "NetworkMode": "bridge",
        "LogConfig": {"Type": "json-file", "Config": {}},
        "PidsLimit": None,
        "CapAdd": None,
    }

    assert line(usual) == "docker run --rm app:1"


def test_an_entry_point_that_is_one_text_is_read_as_its_words() -> None:
    assert line({}, Entrypoint="tini -- /e.sh", Cmd=["a"]) == "docker run --rm --entrypoint tini app:1 -- /e.sh a"
    assert line({}, Entrypoint="tini -- /e.sh", of_image=["tini", "--", "/e.sh"]) == "docker run --rm app:1"
