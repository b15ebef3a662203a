"""The layers of a container, each by itself: what it adds to the bundle, and what is left without it.

System-call filters: Docker's default one, and profiles as Docker writes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tare.base.errors import StudyError
from tare.base.host import LocalHost, Site
from tare.drivers.containers import isolation
from tare.drivers.containers.isolation import LAYERS, USUAL
from tare.parts.platforms.runc import Runc
from tare.studies.load import from_plain


def kinds(layers: tuple[str, ...]) -> set[str]:
    return {each["type"] for each in isolation.linux(layers)["namespaces"]}


def test_without_layers_there_is_a_mount_namespace_and_no_more() -> None:
    assert isolation.linux(()) == {"namespaces": [{"type": "mount"}]}


@pytest.mark.parametrize("layer", ["pid", "ipc", "uts", "network", "user"])
def test_a_namespace_is_there_with_its_layer_alone(layer: str) -> None:
    assert kinds((layer,)) == {"mount", layer}
    assert layer not in kinds(tuple(each for each in LAYERS if each != layer))


def test_a_user_namespace_leaves_the_owners_of_files_as_they_are() -> None:
    (mapping,) = isolation.linux(("user",))["uidMappings"]

    assert (mapping["containerID"], mapping["hostID"]) == (0, 0)
    assert "uidMappings" not in isolation.linux(USUAL)


def test_capabilities_are_all_dropped_by_their_layer_and_all_kept_without_it() -> None:
    held = ["CAP_KILL", "CAP_CHOWN"]

    assert set(map(tuple, isolation.process(USUAL, held)["capabilities"].values())) == {()}
    kept = isolation.process((), held)["capabilities"]
    assert kept == dict.fromkeys(("bounding", "effective", "inheritable", "permitted", "ambient"), sorted(held))


def test_what_we_hold_is_read_from_the_kernel(tmp_path: Path) -> None:
    status = tmp_path / "proc/self/status"
    status.parent.mkdir(parents=True)
    status.write_text("Name:\tpython\nCapBnd:\t0000000000200021\n")

    assert isolation.held_capabilities(LocalHost(root=tmp_path)) == ["CAP_CHOWN", "CAP_KILL", "CAP_SYS_ADMIN"]


def test_a_limit_whose_layer_is_off_is_not_in_force_and_the_core_ratio_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-3\n")
    monkeypatch.setattr(Runc, "make", lambda *_: SimpleNamespace(facts={}))

    def ratio(*layers: Any) -> float:
        part = Runc(quota=1.0, memory=64 << 20, isolation=layers)
        place: Any = part.open(LocalHost(root=tmp_path), Site("tare-test-ratio", tmp_path))
        return float(place.facts["chr"])

    assert ratio("cpu") == 0.25
    assert ratio("uts") == 1.0
    assert Runc(memory=64 << 20, isolation=("cpu",)).in_force().memory is None


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        (["cpu", "sekcomp"], "Did you mean 'seccomp'?"),
        (["user"], "the layer `user` needs ipc, network, pid with it"),
        ("cpu", "must be a list, not 'cpu'"),
    ],
)
def test_what_is_wrong_with_a_list_of_layers_is_said(layers: Any, says: str) -> None:
    with pytest.raises(StudyError) as refused:
        from_plain({"study": "a", "platform": {"runc": {"isolation": layers}}, "workload": "null"})

    assert says in str(refused.value)


@pytest.mark.machine("runc", "root")
def test_a_filter_that_cannot_be_read_is_an_obstacle(tmp_path: Path) -> None:
    broken = tmp_path / "profile.json"
    broken.write_text("{}")
    host = LocalHost()

    assert "no seccomp profile" in str(Runc(seccomp_profile=broken).obstacles(host)[0])
    assert "cannot be read" in str(Runc(seccomp_profile=tmp_path / "absent").obstacles(host)[0])
    assert Runc(seccomp_profile=tmp_path / "absent", isolation=()).obstacles(host) == []


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
