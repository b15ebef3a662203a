"""The layers of a container, each by itself: what it adds to the bundle, and what is left without it."""

from __future__ import annotations

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
