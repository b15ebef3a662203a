import os

from recorded import recorded_host
from tare.base.units import Channel
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.memory import Memory
from tare.parts.protocols import Probe, Reading
from tare.trial.sampler import Watch, pinned, spare_core
from tare.trial.sampler_report import Tally, Tick

PERIOD_NS = 100_000_000


class MemorySpool:
    """A spool that is a list, and on some days full."""

    def __init__(self):
        self.declared, self.rows, self.closed, self.full = [], [], False, False

    def channels(self, channels):
        self.declared += channels

    def tick(self, t_ns, readings):
        if self.full:
            raise OSError(28, "No space left on device")
        if any(not isinstance(value, int | float) for _, _, value in readings):
            raise TypeError("not a number")
        self.rows.append((t_ns, list(readings)))

    def close(self):
        self.closed = True

    def series(self, channel):
        return [reading.value for _, readings in self.rows for reading in readings if reading.channel == channel]


class StandIn(Probe):
    """A probe that does what a test tells its feed to do."""

    may_block = False

    def obstacles(self, host):
        return []

    def open(self, host, scope):
        return StandInFeed(host)


class StandInFeed:
    channels = (Channel("stand_in.count", "1", "counter"),)
    answer = staticmethod(lambda host: [])

    def __init__(self, host):
        self._host = host

    def poll(self):
        return self.answer(self._host)

    def close(self):
        return []


def started(probes, host=None):
    host = host or recorded_host("hybrid_6_18")
    spool = MemorySpool()
    watch = Watch(spool, host, PERIOD_NS)
    watch.open(probes, host.scope())
    return watch, spool, host


def run(watch, host, count):
    for _ in range(count):
        watch.take(Tick(host.clock.now_ns(), 0, 0))
        host.clock.advance(0.1)


def test_every_reading_reaches_the_spool_in_order():
    watch, spool, host = started([Cpu(), Memory()])
    run(watch, host, 25)
    report = watch.close(core=None)
    assert len(spool.series("cpu.user_s")) == len(spool.series("memory.free_bytes")) == report.ticks == 25
    assert spool.closed
    assert {channel.name for channel in spool.declared} >= {"cpu.user_s", "sampler.late_s"}


def test_rows_are_written_at_the_first_tick_then_once_a_second_and_at_the_end():
    watch, spool, host = started([Cpu()])
    run(watch, host, 1)
    assert len(spool.rows) == 1
    run(watch, host, 24)
    watch.close(core=None)
    assert len(spool.rows) == 4


def test_the_sampler_is_a_channel_itself():
    watch, spool, _ = started([])
    watch.take(Tick(1_000, 20_000_000, 0))
    watch.take(Tick(300_001_000, 0, 2))
    watch.close(core=None)
    assert spool.series("sampler.late_s") == [0.02, 0.0]
    assert spool.series("sampler.missed") == [0, 2]
    assert spool.series("sampler.cpu_s") == sorted(spool.series("sampler.cpu_s"))


def test_the_report_says_how_the_grid_was_kept():
    watch, _, _ = started([])
    for due_ns, late_ns, missed in [(0, 0, 0), (100, 5, 0), (400, 90, 2)]:
        watch.take(Tick(due_ns * 1_000_000, late_ns * 1_000_000, missed))
    report = watch.close(core=3)
    assert (report.ticks, report.missed, report.core) == (3, 2, 3)
    assert report.seconds == 0.49
    assert report.longest_gap_s == 0.385
    assert report.late_p99_s == 0.005  # the worst but one of three


def test_a_feed_that_fails_is_counted_and_stops_no_other(monkeypatch):
    def broken(host):
        raise RuntimeError("the sensor is on fire")

    monkeypatch.setattr(StandInFeed, "answer", staticmethod(broken))
    watch, spool, host = started([StandIn(), Cpu()])
    run(watch, host, 3)
    report = watch.close(core=None)
    assert len(spool.series("cpu.user_s")) == 3
    assert report.errors == {"test_sampler_loop": 3}
    assert [*map(str, report.lost)] == ["test_sampler_loop: could not be read: the sensor is on fire (first at 0.0 s)."]


def test_a_probe_that_cannot_start_is_said_and_stops_no_other(monkeypatch):
    def broken(self, host, scope):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(StandIn, "open", broken)
    watch, spool, host = started([StandIn(), Cpu()])
    run(watch, host, 1)
    (sentence,) = map(str, watch.close(core=None).lost)
    assert sentence.startswith("test_sampler_loop: could not start: ")
    assert spool.series("cpu.user_s")


def test_a_feed_that_takes_longer_than_the_period_is_named(monkeypatch):
    monkeypatch.setattr(StandInFeed, "answer", staticmethod(lambda host: host.clock.advance(0.7) or []))
    watch, _, host = started([Cpu(), StandIn()])
    run(watch, host, 2)
    (sentence,) = map(str, watch.close(core=None).lost)
    assert sentence == "test_sampler_loop: took 0.7 s to read (first at 0.7 s)."


def test_a_value_that_is_no_number_costs_only_itself(monkeypatch):
    def odd(host):
        return [Reading(host.clock.now_ns(), "stand_in.count", "N/A")]

    monkeypatch.setattr(StandInFeed, "answer", staticmethod(odd))
    watch, spool, host = started([StandIn(), Cpu()])
    run(watch, host, 15)
    report = watch.close(core=None)
    assert len(spool.series("cpu.user_s")) == 15
    assert spool.series("stand_in.count") == []
    assert report.errors["spool"] == len(spool.rows) == 3


def test_a_full_disk_is_waited_for_and_what_was_seen_is_kept():
    watch, spool, host = started([Cpu()])
    spool.full = True
    run(watch, host, 15)
    spool.full = False
    report = watch.close(core=None)
    assert len(spool.series("cpu.user_s")) == 15
    assert "No space left" in str(report.lost[0])


def test_errors_of_files_are_counted_by_probe():
    watch, _, host = started([Memory()])
    host.files["/proc/meminfo"] = host.files["/proc/meminfo"].replace("23773036", "-1")
    run(watch, host, 4)
    report = watch.close(core=None)
    assert report.errors == {"memory": 4}
    assert [*map(str, report.lost)] == ["memory: meminfo gave nothing usable 4 times; those readings are left out."]


def test_two_cores_or_fewer_have_none_to_spare():
    assert spare_core({0}) is None
    assert spare_core({0, 1}) is None
    assert spare_core({0, 1, 2, 5}) == 5


def test_a_core_that_is_refused_is_said_and_not_reported_as_held():
    tally = Tally(recorded_host("hybrid_6_18").clock)
    assert pinned(None, tally) is None
    assert pinned(100_000, tally) is None
    report = tally.report([], None)
    assert str(report.lost[0]).startswith("sampler: could not keep to core 100000")


def test_a_core_that_is_allowed_is_held():
    allowed = os.sched_getaffinity(0)
    try:
        assert pinned(min(allowed), Tally(recorded_host("hybrid_6_18").clock)) == min(allowed)
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)
