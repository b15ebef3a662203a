from __future__ import annotations

from contextlib import contextmanager

import pytest

from tare.api import running
from tare.api.studies import tried
from tare.studies.load import from_plain


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What platforms were asked for and given back, in this order."""
    log: list[str] = []

    class Needy:
        def __init__(self, name: str) -> None:
            self.name = name

        @contextmanager
        def for_run(self, host):
            log.append(self.name)
            yield f"{self.name} was started." if self.name == "docker" else None
            log.append(f"{self.name} ended")

        def after_dead_run(self, host):
            return f"{self.name} was stopped." if self.name == "docker" else None

    monkeypatch.setattr(running, "platform", Needy)
    return log


def study(**more: object):
    return from_plain({"study": "s", "platform": ["bare", ["qemu", "docker"]], "workload": "null", **more}, "test")


def test_every_outermost_platform_of_a_study_is_asked_once_and_told_when_it_ends(asked):
    with running.needs_of_study(study()):
        assert asked == ["bare", "qemu"]

    assert asked == ["bare", "qemu", "qemu ended", "bare ended"]


def test_the_platforms_of_tenants_beside_are_asked_too_and_what_they_did_is_said(asked, capsys):
    beside = {"beside": {"null": {}}, "platform": "docker"}

    with running.needs_of_study(study(tenants=[1, beside])):
        assert asked == ["bare", "qemu", "docker"]

    assert "docker was started." in capsys.readouterr().err


def test_a_dead_runs_needs_are_asked_of_every_platform(asked):
    assert running.stop_left_overs() == ["docker was stopped."]


def test_the_platforms_that_are_tried_where_none_is_named_are_in_the_order_that_they_say():
    assert tried() == ["docker", "podman", "runc", "apptainer"]
