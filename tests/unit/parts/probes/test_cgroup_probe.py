import pytest

from recorded import let_time_pass, recorded_host
from tare.base.host import Scope
from tare.parts.probes.cgroup import Cgroup, Faults, switches


def values(readings):
    return {reading.channel: reading.value for reading in readings}


def feed_on(host, **fields):
    return Cgroup(**fields).open(host, host.scope())


def test_version_1_is_read_from_its_controllers():
    seen = values(feed_on(recorded_host("hybrid_6_18")).poll())
    assert seen["cgroup.cpu_s"] == pytest.approx(3.4880033)
    assert (seen["cgroup.user_s"], seen["cgroup.system_s"]) == (pytest.approx(3.01), pytest.approx(0.47))
    assert (seen["cgroup.nr_periods"], seen["cgroup.nr_throttled"]) == (40, 7)
    assert seen["cgroup.throttled_s"] == pytest.approx(0.612000123)
    assert seen["cgroup.memory_bytes"] == 180867072
    assert seen["cgroup.memory_peak_bytes"] == 305795072
    assert seen["cgroup.oom_kills"] == 0
    assert (seen["cgroup.read_bytes"], seen["cgroup.write_bytes"]) == (1048576 + 512, 4096)
    assert (seen["cgroup.reads"], seen["cgroup.writes"]) == (32, 1)
    assert seen["cgroup.tasks"] == 3


def test_minor_faults_are_those_that_were_not_major():
    seen = values(feed_on(recorded_host("hybrid_6_18")).poll())
    assert (seen["cgroup.minor_faults"], seen["cgroup.major_faults"]) == (745750 - 155, 155)


def test_on_a_hybrid_device_version_2_adds_the_pressure_and_repeats_nothing():
    feed = feed_on(recorded_host("hybrid_6_18"))
    readings = list(feed.poll())
    assert values(readings)["cgroup.pressure_some_s"] == pytest.approx(0.002615)
    assert len({reading.channel for reading in readings}) == len(readings)


def test_version_2_is_read_from_its_one_folder():
    host = recorded_host("unified_6_12")
    feed = feed_on(host)
    seen = values(feed.poll())
    assert seen["cgroup.cpu_s"] == pytest.approx(8.123456)
    assert seen["cgroup.throttled_s"] == pytest.approx(0.34)
    assert seen["cgroup.memory_peak_bytes"] == 600000000
    assert seen["cgroup.minor_faults"] == 123456 - 56
    assert seen["cgroup.oom_kills"] == 1
    let_time_pass(host)
    later = values(feed.poll())
    assert (later["cgroup.read_bytes"], later["cgroup.reads"]) == (2 * 1048576, 32)


def test_a_group_that_did_no_io_has_done_zero_and_not_nothing():
    assert values(feed_on(recorded_host("unified_6_12")).poll())["cgroup.read_bytes"] == 0


def test_an_old_kernel_is_read_as_far_as_it_counts():
    feed = feed_on(recorded_host("board_4_9"))
    seen = values(feed.poll())
    assert seen["cgroup.minor_faults"] == 4100 - 21  # with the groups below
    assert seen["cgroup.read_bytes"] == 8192
    assert "cgroup.oom_kills" not in seen
    assert "cgroup.tasks" not in seen
    assert feed.lost == []


def test_controllers_that_share_a_hierarchy_may_be_named_together():
    host = recorded_host("board_4_9")
    folder = host.scope_value.cgroups["cpu"]
    feed = Cgroup().open(host, Scope(cgroups={"cpu,cpuacct": folder}))
    assert {"cgroup.cpu_s", "cgroup.nr_throttled"} <= values(feed.poll()).keys()


def test_a_root_group_is_the_whole_device_and_is_left_out():
    host = recorded_host("hybrid_6_18")
    roots = {"cpuacct": "/sys/fs/cgroup/cpuacct", "memory": "/sys/fs/cgroup/memory", "": "/sys/fs/cgroup/unified"}
    feed = Cgroup().open(host, Scope(pid=1, cgroups=roots))
    assert feed.channels == ()
    assert feed.poll() == []
    assert "no group of its own" in str(feed.lost[0])


def test_switches_are_summed_over_threads_and_what_an_ended_one_had_stays():
    host = recorded_host("hybrid_6_18")
    feed = feed_on(host)
    before = values(feed.poll())
    assert before["cgroup.voluntary_switches"] == 812 + 11
    assert before["cgroup.involuntary_switches"] == 95 + 2
    let_time_pass(host)
    del host.files["/proc/4212/status"]
    after = values(feed.poll())
    assert after["cgroup.voluntary_switches"] == 830 + 11
    assert after["cgroup.involuntary_switches"] == 99 + 2


def test_sums_are_read_once_a_second_or_as_often_as_the_study_says():
    host = recorded_host("hybrid_6_18")
    usual, often = feed_on(host), feed_on(host, slow_period_s=0.1)
    for feed in (usual, often):
        feed.poll()
    host.clock.advance(0.1)
    sums = {"cgroup.voluntary_switches", "cgroup.minor_faults", "cgroup.nr_throttled"}
    soon = values(usual.poll()).keys()
    assert not sums & soon
    assert {"cgroup.cpu_s", "cgroup.memory_bytes"} <= soon
    assert sums <= values(often.poll()).keys()
    assert sums <= values(usual.close()).keys()


def test_more_threads_than_the_limit_are_said():
    host = recorded_host("hybrid_6_18")
    feed = feed_on(host, threads=1)
    assert values(feed.poll())["cgroup.voluntary_switches"] == 812
    feed.close()
    assert [*map(str, feed.lost)] == ["cgroup: 2 threads in the group, switches counted in 1 of them."]


def test_switches_can_be_left_out():
    feed = feed_on(recorded_host("hybrid_6_18"), switches=False)
    assert not any("switches" in channel.name for channel in feed.channels)


def test_lines_after_the_switches_are_no_part_of_them():
    status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t1\nx86_Thread_features:\t\n"
    assert switches(status) == (5, 1)


def test_a_file_that_vanishes_is_lost_from_then_on_and_said_once():
    host = recorded_host("hybrid_6_18")
    feed = feed_on(host)
    feed.poll()
    path = f"{host.scope_value.cgroups['memory']}/memory.stat"
    text = host.files.pop(path)
    host.clock.advance(12.34)
    assert "cgroup.minor_faults" not in values(feed.poll())
    host.files[path] = text
    host.clock.advance(1)
    seen = values(feed.poll())
    assert "cgroup.minor_faults" not in seen
    assert "cgroup.memory_bytes" in seen
    assert [*map(str, feed.lost)] == [
        "cgroup: memory.stat vanished at 12.3 s, and with it cgroup.minor_faults, cgroup.major_faults."
    ]


def test_a_group_that_is_removed_while_watched_leaves_sentences_and_no_zeros():
    host = recorded_host("hybrid_6_18")
    feed = feed_on(host)
    feed.poll()
    for path in [path for path in host.files if "/tare/t1/" in path]:
        del host.files[path]
    host.clock.advance(2)
    assert feed.poll() == []
    assert feed.close() == []
    assert "cgroup: its list of threads vanished at 2.0 s." in [*map(str, feed.lost)]


FAULTS, SEVEN = "pgfault 9\npgmajfault 2\n", {"minor_faults": 7, "major_faults": 2}


@pytest.mark.parametrize(
    ("prefix", "text", "seen"),
    [
        ("", f"{FAULTS}pswpin 3\npswpout 4\n", {**SEVEN, "pswpin": 3, "pswpout": 4}),
        ("total_", "swap 1\ntotal_swap 4096\ntotal_pgfault 9\ntotal_pgmajfault 2\n", {**SEVEN, "swap_bytes": 4096}),
        ("", "pswpin 3\npswpout 4\n", {"pswpin": 3, "pswpout": 4}),
        ("", FAULTS, SEVEN),
    ],
)
def test_what_a_group_swapped_is_read_where_the_kernel_counts_it(prefix, text, seen):
    parser = Faults(prefix, text)
    read = {reading.channel.removeprefix("cgroup."): reading.value for reading in parser(1, text)}
    assert read == seen
    assert {channel.name for channel in parser.channels} == {f"cgroup.{name}" for name in seen}
