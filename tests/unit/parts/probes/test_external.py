"""A meter of one's own: a table that grows or is finished later, and commands that print watts."""

import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from tare.base.host import LocalHost, Scope
from tare.parts.probes import external
from tare.parts.probes.external import External
from tare.testing import FakeHost


def values(readings):
    return [reading.value for reading in readings]


def grow(file, text):
    with file.open("a") as table:
        table.write(text)


def wait_for(feed, count=1, limit_s=60.0):
    found, deadline = [], time.monotonic() + limit_s
    while len(found) < count and time.monotonic() < deadline:
        found += feed.poll()
        time.sleep(0.01)
    return found


def test_rows_that_are_appended_count_when_they_come_and_old_ones_do_not(tmp_path):
    file = tmp_path / "meter.csv"
    file.write_text("10.5\n11.5\n")
    host = LocalHost()
    probe = External(file=file)
    assert probe.obstacles(host) == []
    feed = probe.open(host, Scope())
    assert feed.poll() == []
    before_ns = time.monotonic_ns()
    grow(file, "12.5\n13")
    (reading,) = feed.poll()
    assert (reading.channel, reading.value) == ("external.power_w", 12.5)
    assert before_ns <= reading.t_ns <= time.monotonic_ns()
    grow(file, ".5 W\n")
    assert values(feed.poll()) == [13.5]
    assert values(feed.close()) == []
    grow(file, "99\n")
    assert feed.poll() == []


def test_columns_are_named_in_the_first_row_and_have_a_unit(tmp_path):
    file = tmp_path / "meter.csv"
    file.write_text('time;"Power (mW)";note\n')
    feed = External(file=file, column="Power (mW)", unit="mW", separator=";").open(LocalHost(), Scope())
    grow(file, "1;25000,5;on\n2;0,026kW;off\n")
    assert values(feed.poll()) == [25.0005, 26.0]


def test_a_finished_table_is_aligned_by_its_time_column(tmp_path, monkeypatch):
    file, host = tmp_path / "meter.csv", FakeHost()
    begin, begin_ns = datetime(2026, 3, 1, 12, tzinfo=UTC), host.clock.now_ns()
    feed = External(file=file, column="W", time="when").open(host, Scope())
    rows = [f"{(begin + timedelta(seconds=at)).isoformat()},{watts}" for at, watts in ((-0.1, 1), (0.2, 2), (0.4, 3))]
    file.write_text("when,W\n" + "\n".join(rows))
    host.clock.advance(7)
    monkeypatch.setattr(time, "time", lambda: begin.timestamp() + 7)
    found = list(feed.close())
    assert values(found) == [2, 3]
    assert [reading.t_ns - begin_ns for reading in found] == pytest.approx([0.2e9, 0.4e9], abs=1e6)


@pytest.mark.parametrize("scale", [1, 1000])
def test_unix_times_and_a_clock_that_is_wrong_by_a_known_offset(tmp_path, scale, monkeypatch):
    file, host = tmp_path / "meter.csv", FakeHost()
    feed = External(file=file, time=1, column=2, offset_s=3600.0).open(host, Scope())
    monkeypatch.setattr(time, "time", lambda: 1_770_000_000.0)
    file.write_text(f"{(1_770_000_000 - 3600 + 0.5) * scale:.3f},42\n")
    (reading,) = feed.poll()
    assert reading.t_ns == pytest.approx(host.clock.now_ns() + 0.5e9, abs=2e6)


@pytest.mark.parametrize("garbage", ["N/A", "", "-1", "nan", "1e99", "5 mV", "0x10", "2000 kW"])
def test_a_row_without_a_power_is_counted_and_never_zero(tmp_path, garbage):
    file = tmp_path / "meter.csv"
    file.write_text("")
    feed = External(file=file, column=2).open(LocalHost(), Scope())
    grow(file, f"a,{garbage}\nb\nc,7\n")
    assert values(feed.poll()) == [7]
    assert feed.errors == {"rows": 2}


def test_a_table_that_is_begun_anew_is_followed(tmp_path):
    file = tmp_path / "meter.csv"
    file.write_text("1\n2\n3\n")
    feed = External(file=file).open(LocalHost(), Scope())
    file.write_text("4\n")
    assert values(feed.poll()) == [4]


def test_a_table_that_vanishes_is_counted_and_is_no_power(tmp_path):
    file = tmp_path / "meter.csv"
    file.write_text("1\n")
    feed = External(file=file).open(LocalHost(), Scope())
    file.unlink()
    assert feed.poll() == []
    assert feed.errors == {"file": 1}


def test_a_column_that_is_not_there_is_an_obstacle_with_those_that_are(tmp_path):
    file = tmp_path / "meter.csv"
    file.write_text("time,watts\n")
    (sentence,) = map(str, External(file=file, column="power").obstacles(LocalHost()))
    assert "no column 'power'. Available: time, watts" in sentence


def test_a_missing_table_a_missing_command_and_no_meter_at_all_are_obstacles(tmp_path):
    assert "No such file" in str(External(file=tmp_path / "no.csv").obstacles(FakeHost())[0])
    assert "no command 'wattmeter-x'" in str(External(command=("wattmeter-x",)).obstacles(FakeHost())[0])
    assert "name the `file`" in str(External().obstacles(FakeHost())[0])


def test_a_meter_is_read_in_one_way(tmp_path):
    with pytest.raises(ValidationError, match="both given"):
        External(file=tmp_path, command=("cat",))


@pytest.mark.parametrize("more", [{"column": "watts"}, {"time": 1}])
def test_a_command_has_no_header_and_no_times_and_that_is_said_before_a_trial(more):
    with pytest.raises(ValidationError, match="has no header and no times"):
        External(command=("echo", "17.5"), **more)


def test_a_table_with_a_byte_order_mark_has_the_columns_that_one_sees(tmp_path):
    file = tmp_path / "meter.csv"
    file.write_text("watts,volts\n", encoding="utf-8-sig")
    probe = External(file=file, column="watts")
    assert probe.obstacles(LocalHost()) == []
    feed = probe.open(LocalHost(), Scope())
    grow(file, "12.5,230\n")
    assert values(feed.poll()) == [12.5]


def test_a_command_that_goes_on_printing_is_read_line_by_line():
    script = "import time\nfor n in range(3): print(20 + n, flush=True)\ntime.sleep(60)"
    probe = External(command=(sys.executable, "-c", script))
    assert probe.obstacles(LocalHost()) == []
    feed = probe.open(LocalHost(), Scope())
    assert values(wait_for(feed, 3)) == [20, 21, 22]
    pid = feed._child._child.pid
    feed.close()
    with pytest.raises(ProcessLookupError):
        __import__("os").kill(pid, 0)


def test_a_command_that_prints_once_is_run_again():
    feed = External(command=("echo", "17.5"), period="20ms").open(LocalHost(), Scope())
    assert values(wait_for(feed, 3))[:3] == [17.5] * 3
    feed.close()


def test_a_command_that_fails_again_and_again_is_given_up_and_said():
    feed = External(command=("false",), period="1ms").open(LocalHost(), Scope())
    deadline = time.monotonic() + 60
    while not feed.lost and time.monotonic() < deadline:
        feed.poll()
    assert [*map(str, feed.lost)] == ["external: `false` ended with code 1, 5 times in a row; it is not run again."]
    assert feed.errors == {"command": 5}
    assert feed.close() == []


def test_a_counter_of_energy_lies_beside_the_power_in_its_own_unit(tmp_path):
    file = tmp_path / "meter.csv"
    file.write_text("watts,total\n")
    probe = External(file=file, column="watts", energy="total", energy_unit="kWh")
    feed = probe.open(LocalHost(), Scope())
    assert [(channel.name, channel.unit, channel.kind) for channel in feed.channels] == [
        ("external.power_w", "W", "gauge"),
        ("external.counter_j", "J", "counter"),
    ]
    grow(file, "5,1.5\n5,1500 Wh\n5,\n5,2 W\n5,1e9\n")
    assert values(feed.poll()) == [5, 5.4e6, 5, 5.4e6]
    assert feed.errors == {"rows": 3}
    with pytest.raises(ValidationError, match="no header"):
        External(command=("meter",), energy="total")


def test_rows_of_a_time_that_the_device_slept_through_have_no_place_on_its_clock(tmp_path, monkeypatch):
    file = tmp_path / "meter.csv"
    feed = External(file=file, time=1, column=2).open(LocalHost(), Scope())
    slept_s = external._slept_s()
    file.write_text(f"{time.time() + 0.001:.3f},1\n")
    assert values(feed.poll()) == [1]
    monkeypatch.setattr(external, "_slept_s", lambda: slept_s + 1800)
    grow(file, f"{time.time() - 0.01:.3f},2\n")
    assert values(feed.poll()) == []
    grow(file, f"{time.time() + 0.1:.3f},3\n")
    assert values(feed.poll()) == [3]
