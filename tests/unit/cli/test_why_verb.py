"""`tare why --only`: every layer that can be named, and what is left out."""

from __future__ import annotations

import pytest

from some_layers import stage
from tare.analysis.why.layers import waterfall
from tare.base.errors import StudyError
from tare.cli import why
from tare.cli.why.stores import are_stores
from tare.drivers.containers.isolation import USUAL
from tare.parts.platforms.runc import Runc
from tare.plan.why import Stages


def test_only_mounts_is_the_container_with_no_other_layer():
    skipped = why._skipped({}, ("mounts",))
    assert skipped.keys() == {*USUAL, "user"}
    stages = Stages({}, tuple(layer for layer in USUAL if layer not in skipped), ["docker"])
    assert stages.chain == [stages.whole] == [{"runc": {"isolation": [[]]}}]
    assert (stages.without, stages.aside) == ([], [])


def test_an_unpacked_image_is_taken_apart_with_runc_and_no_engine(monkeypatch):
    monkeypatch.setattr(Runc, "obstacles", lambda self, host: [])
    skipped = why._skipped({"image": "/rootfs"}, ("mounts", "pid"))
    stages = why._stages({"image": "/rootfs"}, {"image": "/rootfs"}, skipped)
    assert [each["runc"] for each in stages.chain] == [
        {"image": "/rootfs", "isolation": [layers]} for layers in ([], ["pid"])
    ]
    assert stages.engines == [] and "folder" in skipped["docker"]


def test_the_waterfall_of_mounts_alone_has_that_layer():
    records = [*stage("bare", (), 1.0, 1), *stage("runc", (), 1.3, 2)]
    found = waterfall(records, margin=0.05)
    assert [layer.layer for layer in found.layers] == ["mounts"]
    assert [layer.layer for layer in found.guilty] == ["mounts"]


def test_the_user_namespace_needs_the_layers_that_it_stands_on():
    with pytest.raises(StudyError, match="the layer user needs ipc, network, pid; name them too"):
        why._skipped({}, ("user",))
    assert "user" not in why._skipped({}, ("pid", "ipc", "network", "user"))


def test_without_only_a_layer_is_skipped_for_want_of_a_limit():
    assert why._skipped({"quota": 1.0, "memory": "1GiB"}, None).keys() == {"cpuset"}


def test_a_single_store_is_not_taken_for_a_command(tmp_path):
    (tmp_path / "store.json").write_text("{}")
    with pytest.raises(StudyError, match=r"is one store: `tare why STORE STORE` explains"):
        are_stores((str(tmp_path),))
    assert not are_stores(("python", "train.py"))
    assert not are_stores(())
