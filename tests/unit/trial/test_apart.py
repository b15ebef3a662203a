"""Feeds in threads of their own: whatever one of them does, the others keep their rate."""

import itertools
import os
import resource
import threading

import pytest

from sshd_devices import until
from tare.base.host import LocalHost, Scope, WatchingHost
from tare.base.units import Channel
from tare.parts.probes.thermal import Temperature
from tare.parts.protocols import Probe, Reading
from tare.trial import sampler
from tare.trial.sampler import Watch
from tare.trial.sampler_report import ThreadedFeed, Tick
from trees import sensors

PERIOD_NS = 50_000_000
FOREVER_NS = 1 << 62


class Stepped:
    """A clock that only the test moves: by it nothing is late because the machine is busy."""

    def __init__(self):
        self._now_ns, self._ends_ns, self._moved = 1_000_000_000, [], threading.Condition()

    def now_ns(self):
        return self._now_ns

    def sleep_until(self, t_ns):
        with self._moved:
            self._ends_ns.append(t_ns)
            self._moved.wait_for(lambda: self._now_ns >= t_ns)
            self._ends_ns.remove(t_ns)

    def sleep(self, ns):
        self.sleep_until(self._now_ns + ns)

    def advance(self, ns):
        with self._moved:
            self._now_ns += ns
            self._moved.notify_all()

    def sleepers(self):
        with self._moved:
            return sum(end_ns > self._now_ns for end_ns in self._ends_ns)


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
def _behave(monkeypatch):
    BEHAVIOUR.update(dict.fromkeys(BEHAVIOUR, nothing))
    for limit in ("OPEN_LIMIT_S", "ANSWER_LIMIT_S", "CLOSE_LIMIT_S"):  # of real time, which a busy machine takes
        monkeypatch.setattr(sampler, limit, 60.0)


@pytest.fixture
def clock():
    made = Stepped()
    yield made
    made.advance(2 * FOREVER_NS)


@pytest.fixture
def never(clock):
    """Something that is waited for until the test is over."""
    return lambda: clock.sleep_until(FOREVER_NS)


def watched(clock, probes, ticks, host=None):
    """So many ticks, and what came of them. Between two of them every thread does what it can do by then."""
    spool = ListSpool()
    watch = Watch(spool, host or LocalHost(clock=clock), PERIOD_NS)
    watch.open(probes, Scope())
    watch.await_opened()
    settle(clock, watch)
    for _ in range(ticks):
        watch.take(Tick(clock.now_ns(), 0, 0))
        settle(clock, watch)
        clock.advance(PERIOD_NS)
        settle(clock, watch)
    watch.take(Tick(clock.now_ns(), 0, 0))
    watch.await_answers()
    return watch.close(None), spool


def settle(clock, watch):
    def settled():
        return sum(not feed.settle(0) for _, feed in watch._threaded) <= clock.sleepers()

    until(settled, "each feed has answered or sleeps", 60)


def test_a_feed_apart_gives_all_its_readings_from_the_first_tick_to_its_last_words(clock):
    report, spool = watched(clock, [Sensor(word="slow")], 10)
    assert spool.count("sensor.slow") == 13
    assert report.errors == {}
    assert spool.readings[-1].value == 2.0
    assert spool.declared[-1].name == "sensor.slow"


def test_a_sensor_that_hangs_costs_no_other_a_tick_and_is_told(clock, never, monkeypatch):
    monkeypatch.setattr(sampler, "ANSWER_LIMIT_S", 0.05)
    BEHAVIOUR["poll"] = never
    report, spool = watched(clock, [Sensor(word="slow"), Sensor(), Quick(word="quick")], 10)
    assert spool.count("sensor.slow") == 0
    assert spool.count("sensor.quick") == 12
    assert spool.count("sensor.one") >= 11  # at the end it may be late
    assert "sensor: no response since 0.0 s; the other probes were read as usual." in [*map(str, report.lost)]


def test_a_sensor_that_is_slow_is_read_as_often_as_it_can_be(clock):
    reads = itertools.count()
    BEHAVIOUR["poll"] = lambda: clock.sleep(170_000_000) if next(reads) in (1, 2) else None
    report, spool = watched(clock, [Sensor(word="slow"), Quick(word="quick")], 12)
    assert spool.count("sensor.quick") == 14
    assert spool.count("sensor.slow") == 9  # two of its reads take four ticks
    assert report.errors == {"sensor": 6}
    assert [*map(str, report.lost)] == ["sensor: reads took up to 0.2 s; 6 were skipped."]


def test_a_sensor_that_hangs_when_it_is_opened_is_left_out(clock, never, monkeypatch):
    monkeypatch.setattr(sampler, "OPEN_LIMIT_S", 0.1)
    BEHAVIOUR["open"] = lambda: never() if threading.current_thread().name == "sensor" else None
    report, spool = watched(clock, [Sensor(word="slow"), Quick(word="quick")], 3)
    assert spool.count("sensor.quick") == 5
    (sentence,) = map(str, report.lost)
    assert sentence == "sensor: gave no answer within 0.1 s, and is left out (first at 0.0 s)."


def test_one_that_hangs_when_it_is_closed_does_not_keep_the_trial(clock, never, monkeypatch):
    monkeypatch.setattr(sampler, "CLOSE_LIMIT_S", 0.1)
    BEHAVIOUR["close"] = never  # whoever waited for it would not return
    _, spool = watched(clock, [Sensor(word="slow")], 2)
    assert spool.count("sensor.slow") == 4


def test_errors_of_a_feed_apart_are_counted_one_by_one(clock):
    def broken():
        raise RuntimeError("the sensor is on fire")

    BEHAVIOUR["poll"] = broken
    report, _ = watched(clock, [Sensor(word="slow")], 3)
    assert report.errors == {"sensor": 5}
    assert str(report.lost[0]).startswith("sensor: could not be read: the sensor is on fire")


def test_one_that_cannot_be_opened_is_said_and_not_asked(clock):
    def broken():
        raise PermissionError(13, "Permission denied")

    BEHAVIOUR["open"] = broken
    report, spool = watched(clock, [Sensor(word="slow")], 2)
    assert spool.readings[:1] != []  # the sampler's own
    assert str(report.lost[0]).startswith("sensor: could not start: ")


def test_a_sensor_file_that_blocks_like_a_pipe_leaves_the_other_probes_alone(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(sampler, "OPEN_LIMIT_S", 0.2)
    root = sensors.nano(tmp_path)
    blocked = root / "sys/class/thermal/thermal_zone1/temp"
    blocked.unlink()
    os.mkfifo(blocked)
    report, spool = watched(clock, [Temperature(), Quick(word="quick")], 5, WatchingHost(clock=clock, root=root))
    assert spool.count("sensor.quick") == 7
    (sentence,) = map(str, report.lost)
    assert sentence == "temperature: gave no answer within 0.2 s, and is left out (first at 0.0 s)."
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


def test_poll_never_waits(clock, never):
    apart = ThreadedFeed("sensor", lambda: SensorFeed(LocalHost(), "slow"), clock)
    assert apart.settle(60)
    BEHAVIOUR["poll"] = never
    waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    assert [apart.poll() for _ in range(2)] == [[], []]
    assert apart.late == 0  # asked again at once, as by the last tick: nothing is late yet
    clock.advance(30_000_000)
    assert [apart.poll() for _ in range(98)] == [[]] * 98
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - waits < 10  # a poll that waits gives up the core
    assert apart.late == 98
