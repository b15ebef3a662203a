"""What every probe promises, ours and those of others: found by name, run on devices that were written down."""

from __future__ import annotations

import math
import re

import pytest

from recorded import SCOPES, let_time_pass, recorded_host
from tare.base.declare import before
from tare.base.errors import TareError
from tare.base.host import LocalHost, Scope, WatchingHost
from tare.base.units import Channel
from tare.parts.find import find, names
from tare.parts.protocols import Feed, Probe, Reading, Recorder
from tare.testing import FakeHost

UNITS = {"s", "ns", "bytes", "share", "1", "Hz", "W", "J", "C"}
ENDINGS = {"s": "_s", "bytes": "_bytes", "Hz": "_hz", "W": "_w", "J": "_j", "share": "_share", "C": "_c", "ns": "_ns"}

on_every_probe = pytest.mark.parametrize("name", names("probes"))
RECORDERS = [name for name in names("probes") if issubclass(find("probes", name), Recorder)]
on_every_recorder = pytest.mark.parametrize("name", RECORDERS)
on_every_device = pytest.mark.parametrize("device", SCOPES)


def make(name: str) -> Probe:
    probe = find("probes", name)()
    assert isinstance(probe, Probe)
    return probe


def in_force(name: str, host: FakeHost) -> Feed | None:
    """The probe's feed on this device, or None where the probe says that it cannot work there."""
    probe = make(name)
    # A recorder has no feed without a folder, and its own tests on a real kernel.
    return None if isinstance(probe, Recorder) or probe.obstacles(host) else probe.open(host, host.scope())


def check_agreement(feed: Feed, readings: list[Reading]) -> None:
    declared = [channel.name for channel in feed.channels]
    assert len(set(declared)) == len(declared)
    assert {reading.channel for reading in readings} <= set(declared)
    assert all(math.isfinite(reading.value) for reading in readings)


@on_every_probe
def test_a_probe_is_a_value(name):
    assert make(name) == make(name)
    assert hash(make(name)) == hash(make(name))
    assert type(make(name)).model_validate(make(name).fields()) == make(name)


@on_every_probe
def test_obstacles_have_a_code_and_a_sentence_that_leaves_the_name_to_whoever_asked(name):
    for found in make(name).obstacles(FakeHost()):
        assert (found.weight, found.subject) == ("obstacle", "")
        assert not found.sentence.startswith(f"{name}: ")
        assert found.sentence.endswith(".")
        assert len(found.sentence.split()) > 3


@on_every_probe
@on_every_device
def test_channels_and_readings_agree(name, device):
    host = recorded_host(device)
    if (feed := in_force(name, host)) is None:
        return
    readings = list(feed.poll())
    check_agreement(feed, readings)
    assert {reading.channel for reading in readings} == {channel.name for channel in feed.channels}
    for channel in feed.channels:
        assert channel.unit in UNITS
        assert channel.name.startswith(f"{name}.")
        assert channel.name.endswith(ENDINGS.get(channel.unit, ""))
        assert Channel.of({"name": channel.name, "unit": channel.unit, "kind": channel.kind, "about": channel.about,
                           **channel.declared()}) == channel  # fmt: skip
        assert channel.declared() == before().channels.get(channel.name, channel.declared())


@on_every_probe
@on_every_device
def test_counters_never_fall_and_time_never_goes_back(name, device):
    host = recorded_host(device)
    if (feed := in_force(name, host)) is None:
        return
    first = list(feed.poll())
    let_time_pass(host)
    second = list(feed.poll())
    last = list(feed.close())
    check_agreement(feed, first + second + last)
    counters = {channel.name for channel in feed.channels if channel.kind == "counter"}
    seen: dict[str, Reading] = {}
    for reading in first + second + last:
        before = seen.get(reading.channel, reading)
        assert reading.t_ns >= before.t_ns
        assert reading.channel not in counters or reading.value >= before.value
        seen[reading.channel] = reading
    assert any(now.value > then.value for now in second for then in first if now.channel == then.channel)


@on_every_probe
@on_every_device
def test_any_one_file_may_vanish_and_the_others_are_still_read(name, device):
    paths = list(recorded_host(device).files)
    for path in paths:
        host = recorded_host(device)
        if (feed := in_force(name, host)) is None:
            return
        before = {reading.channel for reading in feed.poll()}
        del host.files[path]
        host.clock.advance(2)
        after = list(feed.poll())
        check_agreement(feed, after)
        assert {reading.channel for reading in after} <= before
        check_agreement(feed, list(feed.close()))


@on_every_probe
@on_every_device
@pytest.mark.parametrize("garbage", ["", "N/A", "nan", "32760 ma", "-1", "1e99", "9" * 400])
def test_garbage_is_never_a_number(name, device, garbage):
    host = recorded_host(device)
    if (feed := in_force(name, host)) is None:
        return
    truth = {reading.channel: reading.value for reading in feed.poll()}
    host.files = {path: _spoilt(text, garbage) for path, text in host.files.items()}
    host.clock.advance(2)
    for reading in [*feed.poll(), *feed.close()]:
        # Only a file that had no number to spoil can still be read: an empty io.stat means that nothing was done.
        assert reading.value == truth[reading.channel] == 0


def _spoilt(text: str, garbage: str) -> str:
    """The same file with garbage in place of every number."""
    return re.sub(r"(?<![\w.])\d+(?![\w.])", garbage, text)


@pytest.mark.parametrize("name", [name for name in names("probes") if name not in RECORDERS])
def test_a_device_with_nothing_on_it_stops_nobody(name):
    feed = make(name).open(FakeHost(), Scope())
    assert list(feed.poll()) == []
    assert list(feed.close()) == []


@on_every_probe
@on_every_device
def test_after_close_there_is_nothing_more(name, device):
    host = recorded_host(device)
    if (feed := in_force(name, host)) is None:
        return
    feed.poll()
    feed.close()
    host.clock.advance(2)
    assert list(feed.poll()) == []


@on_every_recorder
def test_a_recorder_says_what_is_missing_on_a_device_that_has_nothing(name, tmp_path):
    assert make(name).obstacles(FakeHost())
    with pytest.raises(TareError):
        make(name).open(FakeHost(), Scope())


@on_every_probe
def test_on_this_machine_two_polls_agree(name, tmp_path):
    probe = make(name)
    if probe.obstacles(LocalHost()):
        return
    host = WatchingHost()
    recorded = isinstance(probe, Recorder)
    feed = probe.record(host, [LocalHost().scope()], tmp_path) if recorded else probe.open(host, Scope())
    first, second = list(feed.poll()), list(feed.poll())
    check_agreement(feed, first + second)
    list(feed.close())
    host.close()
    if recorded:
        for table in probe.tables(tmp_path):
            assert len({len(column) for column in table.columns.values()}) == 1
