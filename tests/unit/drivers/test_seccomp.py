"""System-call filters: Docker's default one, and profiles as Docker writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tare.base.errors import StudyError
from tare.drivers.containers import isolation


def profile(tmp_path: Path, syscalls: list[dict[str, Any]], **more: Any) -> Path:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": syscalls} | more))
    return path


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_dockers_default_lets_a_program_work_and_not_change_the_machine(machine: str) -> None:
    made = isolation.docker_default(machine)
    allowed = {name for rule in made["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}

    assert made["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {"read", "write", "mmap", "futex", "openat", "clone", "execve", "ptrace", "process_vm_readv"} <= allowed
    assert not {"mount", "bpf", "unshare", "setns", "keyctl", "reboot", "init_module", "perf_event_open"} & allowed


def test_clone3_is_said_to_be_missing_so_that_programs_fall_back() -> None:
    (rule,) = [rule for rule in isolation.docker_default("x86_64")["syscalls"] if rule["names"] == ["clone3"]]

    assert (rule["action"], rule["errnoRet"]) == ("SCMP_ACT_ERRNO", 38)


def test_what_dockers_default_allows_in_part_it_looks_at_closely() -> None:
    made = isolation.docker_default("x86_64")
    args = {rule["names"][0]: rule["args"] for rule in made["syscalls"] if "args" in rule}

    assert made["defaultErrnoRet"] == 1  # EPERM
    assert args["clone"] == [{"index": 0, "value": 0x7E020000, "op": "SCMP_CMP_MASKED_EQ", "valueTwo": 0}]
    assert args["socket"] == [{"index": 0, "value": 40, "op": "SCMP_CMP_NE"}]  # all but AF_VSOCK


def test_no_name_is_listed_twice() -> None:
    assert len(isolation.ALLOWED) == len(set(isolation.ALLOWED))


def test_rules_for_other_machines_and_for_capabilities_that_are_not_held_are_left_out(tmp_path: Path) -> None:
    path = profile(
        tmp_path,
        [
            {"names": ["read"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["arch_prctl"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["amd64"]}},
            {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["acct"], "action": "SCMP_ACT_ERRNO", "excludes": {"caps": ["CAP_SYS_PACCT"]}, "errnoRet": 1},
        ],
    )

    def named(machine: str, *held: str) -> list[str]:
        return [rule["names"][0] for rule in isolation.from_file(path, machine, held)["syscalls"]]

    assert named("aarch64") == ["read", "acct"]
    assert named("x86_64", "CAP_SYS_ADMIN", "CAP_SYS_PACCT") == ["read", "arch_prctl", "bpf"]


@pytest.mark.parametrize("text", ["{", "[]", '{"syscalls": 3, "defaultAction": "x"}', '{"defaultAction": "x"}'])
def test_what_is_no_profile_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)

    with pytest.raises(StudyError, match=r"broken\.json: this is no seccomp profile"):
        isolation.from_file(path, "aarch64")


def test_a_missing_profile_and_an_unknown_machine_are_said(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="cannot be read"):
        isolation.from_file(tmp_path / "none.json", "aarch64")
    with pytest.raises(StudyError, match="no system-call filter for 'riscv64'"):
        isolation.docker_default("riscv64")
