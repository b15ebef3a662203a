"""A study that names no probes watches the GPU, where there is one."""

from __future__ import annotations

from typing import Any

import pytest

from tare.base.host import Host
from tare.drivers import nvidia
from tare.parts.probes import gpu
from tare.plan.check import possible
from tare.studies.load import from_plain
from tare.studies.model import DEFAULT_PROBES
from tare.testing import FakeHost

PLAIN: dict[str, Any] = {"study": "s", "platform": "bare", "workload": "torch_train"}
WITH_DRIVER = FakeHost(files={nvidia.DRIVER: "NVRM version: 580"})


def probes(host: Host, **keys: Any) -> list[str]:
    return [choice.name for choice in possible(from_plain(PLAIN | keys), host).study.probes]


def test_the_gpu_is_watched_where_there_is_a_driver_and_the_study_names_no_probes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu.Gpu, "obstacles", lambda self, host: [])
    assert probes(FakeHost(files={})) == list(DEFAULT_PROBES)
    assert probes(WITH_DRIVER) == [*DEFAULT_PROBES, "gpu"]
    assert probes(WITH_DRIVER, probes=["cpu"]) == ["cpu"]
    assert probes(WITH_DRIVER, probes=[]) == []


def test_a_gpu_that_cannot_be_watched_is_named_and_the_study_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "trouble", lambda host: "nvidia-ml-py is not installed")
    found = possible(from_plain(PLAIN), WITH_DRIVER).study
    assert [choice.name for choice in found.probes] == list(DEFAULT_PROBES)
    assert [(ruling.code, ruling.subject) for ruling in found.left_out] == [("needs.gpu", "probe gpu")]
