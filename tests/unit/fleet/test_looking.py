"""`tare device fleet check`: what each device answers, and what cannot be understood of it. No network is used."""

from __future__ import annotations

import json

import pytest

from tare import __version__
from tare.base.errors import TareError
from tare.base.rulings import obstacle
from tare.fleet import inspection
from tare.fleet.inspection import inspect_all_devices, inspect_device
from tare.fleet.inventory import Device
from tare.fleet.ssh import Answer, Refused, Unreachable

GOOD = {kind: [{"name": f"a {kind}", "ok": True}, {"name": "b", "ok": False}] for kind in inspection._KINDS}


def said(out: str = json.dumps(GOOD), version: str = __version__, owner: object = None) -> dict[str, object]:
    return {
        "python": "3.8.10", "machine": "aarch64", "kernel": "5.10", "root": True, "free_bytes": 1 << 40,
        "state": "/var/lib/tare", "owner": owner, "engine": {"code": 0, "out": f"tare, version {version}\n", "err": ""},
        "abilities": {"code": 0, "out": out, "err": ""},
    }  # fmt: skip


@pytest.fixture
def answers(monkeypatch):
    """What each device says, by its name; an error is raised."""
    found: dict[str, object] = {}

    def ask(device, question, within_s):
        if isinstance(found[device.name], TareError):
            raise found[device.name]
        return Answer(found[device.name])

    monkeypatch.setattr(inspection, "ask", ask)
    monkeypatch.setattr(inspection, "clock", lambda device, within_s: (0.0, 0.001))
    return found


def devices(*names: str, **fields: str) -> list[Device]:
    return [Device(name=name, address=f"{name}.example", **fields) for name in names]


@pytest.mark.parametrize("out", ["", "no json", "[]", "{}", '{"platforms": 7, "controls": [], "probes": []}'])
def test_another_tare_whose_words_are_not_understood_is_that_devices_trouble_alone(answers, out):
    answers |= {"a": said(), "b": said(out, version="9.9"), "c": Unreachable("c", "no line")}
    a, b, c = inspect_all_devices(devices("a", "b", "c"))
    assert a.ready
    assert (a.platforms, a.probes) == (("a platforms",), ("a probes",))
    assert (b.reachable, b.ready, b.platforms) == (True, False, None)
    assert any("9.9 is there" in sentence for sentence in map(str, b.troubles))
    assert any("`tare doctor --json` says there cannot be read here" in sentence for sentence in map(str, b.troubles))
    assert (c.reachable, c.troubles) == (False, (obstacle("fleet.unreachable", "no line"),))


def test_an_engine_that_says_nothing_of_its_version_is_not_tare(answers):
    answers["a"] = {**said(), "engine": {"code": 0, "out": " \n", "err": "odd"}}
    (a,) = inspect_all_devices(devices("a"))
    assert (a.tare, a.ready) == (None, False)


def test_a_lean_device_has_no_probes_that_nobody_looked_for(answers):
    answers["a"] = said()
    (a,) = inspect_all_devices(devices("a", tare="none"))
    assert (a.driven, a.platforms, a.controls, a.probes) == ("lean", ("bare",), (), None)


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        ({"pid": 7, "run": "my study", "since": 1.0}, "another run owns it: pid 7, run 'my study'."),
        ({"pid": 7, "user": "eva", "run": "tare run s"}, "another run owns it: pid 7 of eva, run 'tare run s'."),
        ({"pid": 7}, "another run owns it: pid 7."),
    ],
)
def test_who_owns_a_device_is_said_as_far_as_it_is_known(answers, owner, says):
    answers["a"] = said(owner=owner)
    found = inspect_device(devices("a")[0])
    assert (found.ready, [*map(str, found.troubles)]) == (False, [says])


def test_a_clock_that_tells_no_time_is_that_devices_trouble(answers, monkeypatch):
    def clock(device, within_s):
        raise Refused(device.name, "its answer to a request for the time was b'x'.")

    answers["a"] = said()
    monkeypatch.setattr(inspection, "clock", clock)
    assert inspect_device(devices("a")[0]).troubles == (
        obstacle("fleet.refused", "its answer to a request for the time was b'x'."),
    )
