"""Feeds in threads of their own: whatever one of them does, the others keep their rate."""

import os
import resource
import threading
import time

import pytest

from tare.base.host import LocalHost, Scope, WatchingHost
from tare.base.units import Channel
from tare.parts.probes.thermal import Temperature
from tare.parts.protocols import Probe, Reading
from tare.trial import sampler
from tare.trial.sampler import Watch
from tare.trial.sampler_report import ThreadedFeed, Tick
from trees import sensors

PERIOD_NS = 20_000_000


class ListSpool:
    def __init__(self):
        self.declared, self.readings = [], []

    def channels(self, channels):
        self.declared += channels

    def tick(self, t_ns, readings):
        self.readings += readings

    def close(self):
        pass

    def count(self, channel):
        return sum(reading.channel == channel for reading in self.readings)


class Sensor(Probe):
    """A probe whose feed does as a test says."""

    word: str = "one"

    def obstacles(self, host):
        return []

    @classmethod
    def part_name(cls):
        return "sensor"

    def open(self, host, scope):
        BEHAVIOUR["open"]()
        return SensorFeed(host, self.word)


class Quick(Sensor):
    may_block = False


class SensorFeed:
    def __init__(self, host, word):
        self._host, self._word = host, word
        self.channels = (Channel(f"sensor.{word}", "1", "gauge"),)

    def poll(self):
        if self._word == "slow":
            BEHAVIOUR["poll"]()
        return [Reading(self._host.clock.now_ns(), f"sensor.{self._word}", 1.0)]

    def close(self):
        if self._word == "slow":
            BEHAVIOUR["close"]()
        return [Reading(self._host.clock.now_ns(), f"sensor.{self._word}", 2.0)]


def nothing():
    pass


BEHAVIOUR = {"open": nothing, "poll": nothing, "close": nothing}


@pytest.fixture(autouse=True)
def _behave():
    BEHAVIOUR.update(dict.fromkeys(BEHAVIOUR, nothing))


@pytest.fixture
def never():
    """Something that is waited for until the test is over."""
    event = threading.Event()
    yield event
    event.set()


def watched(probes, ticks, host=None):
    """So many ticks of a real clock, and what came of them."""
    spool = ListSpool()
    watch = Watch(spool, host or LocalHost(), PERIOD_NS)
    watch.open(probes, Scope())
    watch.await_opened()
    for _ in range(ticks):
        watch.take(Tick(time.monotonic_ns(), 0, 0))
        time.sleep(PERIOD_NS / 1e9)
    watch.take(Tick(time.monotonic_ns(), 0, 0))
    watch.await_answers()
    return watch.close(None), spool


def test_a_feed_apart_gives_all_its_readings_from_the_first_tick_to_its_last_words():
    report, spool = watched([Sensor(word="slow")], 10)
    assert spool.count("sensor.slow") == 13 - report.errors.get("sensor", 0)
    assert spool.readings[-1].value == 2.0
    assert spool.declared[-1].name == "sensor.slow"


def test_a_sensor_that_hangs_costs_no_other_a_tick_and_is_told(never, monkeypatch):
    monkeypatch.setattr(sampler, "ANSWER_LIMIT_S", 0.05)
    BEHAVIOUR["poll"] = never.wait
    report, spool = watched([Sensor(word="slow"), Sensor(), Quick(word="quick")], 10)
    assert spool.count("sensor.slow") == 0
    assert spool.count("sensor.quick") == 12
    assert spool.count("sensor.one") >= 5
    assert "sensor: no response since 0.0 s; the other probes were read as usual." in [*map(str, report.lost)]


def test_a_sensor_that_is_slow_is_read_as_often_as_it_can_be():
    BEHAVIOUR["poll"] = lambda: time.sleep(0.07)
    report, spool = watched([Sensor(word="slow"), Quick(word="quick")], 12)
    assert spool.count("sensor.quick") == 14
    assert 3 <= spool.count("sensor.slow") < 14
    assert report.errors["sensor"] >= 2
    assert any("sensor: reads took up to 0." in sentence for sentence in map(str, report.lost))


def test_a_sensor_that_hangs_when_it_is_opened_is_left_out(never, monkeypatch):
    monkeypatch.setattr(sampler, "OPEN_LIMIT_S", 0.1)
    BEHAVIOUR["open"] = lambda: never.wait() if threading.current_thread().name == "sensor" else None
    report, spool = watched([Sensor(word="slow"), Quick(word="quick")], 3)
    assert spool.count("sensor.quick") == 5
    (sentence,) = map(str, report.lost)
    assert sentence.startswith("sensor: gave no answer within 0.1 s, and is left out (first at 0.")


def test_one_that_hangs_when_it_is_closed_does_not_keep_the_trial(never, monkeypatch):
    monkeypatch.setattr(sampler, "CLOSE_LIMIT_S", 0.1)
    BEHAVIOUR["close"] = never.wait
    _, spool = watched([Sensor(word="slow")], 2)
    assert spool.count("sensor.slow") >= 3


def test_errors_of_a_feed_apart_are_counted_one_by_one():
    def broken():
        raise RuntimeError("the sensor is on fire")

    BEHAVIOUR["poll"] = broken
    report, _ = watched([Sensor(word="slow")], 3)
    assert report.errors == {"sensor": 5}
    assert str(report.lost[0]).startswith("sensor: could not be read: the sensor is on fire")


def test_one_that_cannot_be_opened_is_said_and_not_asked():
    def broken():
        raise PermissionError(13, "Permission denied")

    BEHAVIOUR["open"] = broken
    report, spool = watched([Sensor(word="slow")], 2)
    assert spool.readings[:1] != []  # the sampler's own
    assert str(report.lost[0]).startswith("sensor: could not start: ")


def test_a_sensor_file_that_blocks_like_a_pipe_leaves_the_other_probes_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(sampler, "OPEN_LIMIT_S", 0.2)
    root = sensors.nano(tmp_path)
    blocked = root / "sys/class/thermal/thermal_zone1/temp"
    blocked.unlink()
    os.mkfifo(blocked)
    report, spool = watched([Temperature(), Quick(word="quick")], 5, WatchingHost(root=root))
    assert spool.count("sensor.quick") == 7
    (sentence,) = map(str, report.lost)
    assert sentence.startswith("temperature: gave no answer within 0.2 s, and is left out (first at 0.")
    os.close(os.open(blocked, os.O_RDWR | os.O_NONBLOCK))  # lets the thread go


def test_obstacles_of_a_sensor_that_blocks_are_a_sentence(tmp_path, monkeypatch):
    from tare.parts.probes import thermal

    monkeypatch.setattr(thermal, "_ANSWER_S", 0.1)
    root = sensors.nano(tmp_path)
    blocked = root / "sys/class/thermal/thermal_zone0/type"
    blocked.unlink()
    os.mkfifo(blocked)
    (sentence,) = map(str, Temperature().obstacles(LocalHost(root=root)))
    assert "gave no answer within 0.1 s" in sentence
    os.close(os.open(blocked, os.O_RDWR | os.O_NONBLOCK))


def test_poll_never_waits(never):
    apart = ThreadedFeed("sensor", lambda: SensorFeed(LocalHost(), "slow"), LocalHost().clock)
    assert apart.settle(5)
    BEHAVIOUR["poll"] = never.wait
    waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    assert [apart.poll() for _ in range(2)] == [[], []]
    assert apart.late == 0  # asked again at once, as by the last tick: nothing is late yet
    time.sleep(0.03)
    assert [apart.poll() for _ in range(98)] == [[]] * 98
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - waits < 10  # a poll that waits gives up the core
    assert apart.late == 98
