import errno

import pytest

from recorded import let_time_pass, recorded_host
from tare.base.host import Scope
from tare.base.units import Channel
from tare.drivers.kernel_files import FileFeed, KernelFile
from tare.drivers.storage import loop
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.memory import Disk, Memory
from tare.parts.protocols import Reading
from tare.testing import FakeHost


def values(readings):
    return {reading.channel: reading.value for reading in readings}


def test_cpu_times_are_seconds_by_kind():
    seen = values(Cpu().open(recorded_host("hybrid_6_18"), Scope()).poll())
    assert seen["cpu.user_s"] == pytest.approx(165.29)
    assert seen["cpu.idle_s"] == pytest.approx(2085.12)
    assert seen["cpu.steal_s"] == pytest.approx(0.16)
    assert seen["cpu.busy_s"] == pytest.approx(165.29 + 23.23 + 0.63)
    assert seen["cpu.switches"] == 383312
    assert seen["cpu.running"] == 2
    assert seen["cpu.pressure_some_s"] == pytest.approx(5.796829)


def test_iowait_which_the_kernel_may_take_back_does_not_fall():
    host = recorded_host("hybrid_6_18")
    feed = Cpu().open(host, Scope())
    before = values(feed.poll())
    let_time_pass(host)
    assert " 417 " in host.files["/proc/stat"].partition("\n")[0]
    assert values(feed.poll())["cpu.iowait_s"] == before["cpu.iowait_s"] == pytest.approx(4.18)


def test_an_old_kernel_without_pressure_just_lacks_that_channel():
    feed = Cpu().open(recorded_host("board_4_9"), Scope())
    assert not any("pressure" in channel.name for channel in feed.channels)
    assert feed.lost == []


def test_a_core_that_goes_offline_ends_its_series_and_no_other():
    host = recorded_host("unified_6_12")
    feed = Cpu(per_core=True, frequency=True).open(host, Scope())
    before = values(feed.poll())
    assert before["cpu.core3.user_s"] == pytest.approx(226.0)
    assert before["cpu.core3.freq_hz"] == 2_400_003_000
    let_time_pass(host)
    del host.files["/sys/devices/system/cpu/cpu3/cpufreq/scaling_cur_freq"]
    after = values(feed.poll())
    assert before.keys() - after.keys() == {name for name in before if name.startswith("cpu.core3.")}
    assert [*map(str, feed.lost)] == ["cpu: scaling_cur_freq vanished at 2.0 s, and with it cpu.core3.freq_hz."]


def test_memory_is_in_bytes_and_swapping_in_pages():
    seen = values(Memory().open(recorded_host("unified_6_12"), Scope()).poll())
    assert seen["memory.available_bytes"] == 60003344 * 1024
    assert seen["memory.swap_free_bytes"] == 8380000 * 1024
    assert seen["memory.dirty_bytes"] == 512 * 1024
    assert (seen["memory.pswpin"], seen["memory.pswpout"]) == (17, 2151)
    assert seen["memory.pgmajfault"] == 10220


def test_a_size_in_another_unit_is_refused():
    host = recorded_host("hybrid_6_18")
    feed = Memory().open(host, Scope())
    host.files["/proc/meminfo"] = host.files["/proc/meminfo"].replace("31016 kB", "31016 MB")
    assert "memory.dirty_bytes" not in values(feed.poll())
    assert feed.errors == {"meminfo": 1}


def test_counts_that_matter_as_a_sum_are_read_once_a_second_and_at_the_end():
    host = recorded_host("hybrid_6_18")
    feed = Memory().open(host, Scope())
    assert "memory.pgfault" in values(feed.poll())
    host.clock.advance(0.1)
    assert "memory.pgfault" not in values(feed.poll())
    host.clock.advance(0.9)
    assert "memory.pgfault" in values(feed.poll())
    assert "memory.pgfault" in values(feed.close())


@pytest.mark.parametrize(
    ("device", "disks"), [("hybrid_6_18", {"vda"}), ("unified_6_12", {"nvme0n1", "dm-0"}), ("board_4_9", {"mmcblk0"})]
)
def test_whole_disks_are_watched_and_neither_partitions_nor_loops(device, disks):
    feed = Disk().open(recorded_host(device), Scope())
    assert {channel.name.split(".")[1] for channel in feed.channels} == disks


def test_disk_sectors_are_512_bytes_and_times_are_seconds():
    seen = values(Disk().open(recorded_host("board_4_9"), Scope()).poll())
    assert seen["disk.mmcblk0.reads"] == 60210
    assert seen["disk.mmcblk0.read_bytes"] == 4021000 * 512
    assert seen["disk.mmcblk0.writes"] == 20100
    assert seen["disk.mmcblk0.write_bytes"] == 1802100 * 512
    assert seen["disk.mmcblk0.busy_s"] == pytest.approx(120.0)
    assert seen["disk.mmcblk0.queue_s"] == pytest.approx(620.0)
    assert seen["disk.mmcblk0.in_flight"] == 0


def test_an_emulated_medium_is_watched_under_one_name_whichever_loop_device_it_has():
    host = recorded_host("board_4_9")
    host.files["/proc/diskstats"] += (
        "   7       3 loop3 11 0 88 4 5 0 40 2 1 9 12\n   7       4 loop4 1 0 8 4 5 0 40 2 1 9 12\n"
    )
    host.files["/sys/block/loop3/loop/backing_file"] = f"{loop.image()}\n"
    host.files["/sys/block/loop4/loop/backing_file"] = "/home/me/other.img\n"
    seen = values(Disk().open(host, Scope()).poll())
    assert (seen["disk.storage.reads"], seen["disk.storage.read_bytes"]) == (11, 88 * 512)
    assert (seen["disk.storage.in_flight"], seen["disk.storage.queue_s"]) == (1, pytest.approx(0.012))
    assert not any("loop" in channel for channel in seen)


def test_a_partition_is_watched_where_the_study_names_it():
    host = recorded_host("unified_6_12")
    disk = Disk(devices=("nvme0n1p2",))
    assert disk.obstacles(host) == []
    assert values(disk.open(host, Scope()).poll())["disk.nvme0n1p2.reads"] == 149000


def test_a_disk_that_is_not_there_is_an_obstacle_with_the_names_of_those_that_are():
    (sentence,) = map(str, Disk(devices=("sda",)).obstacles(recorded_host("unified_6_12")))
    assert "'sda'" in sentence
    assert "nvme0n1" in sentence


def test_a_disk_that_is_unplugged_ends_its_series():
    host = recorded_host("unified_6_12")
    feed = Disk().open(host, Scope())
    host.files["/proc/diskstats"] = "".join(
        line for line in host.files["/proc/diskstats"].splitlines(keepends=True) if "dm-0" not in line
    )
    assert {name.split(".")[1] for name in values(feed.poll())} == {"nvme0n1"}


class FailingHost(FakeHost):
    def read(self, path):
        if str(path) in self.failing:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(path)


def test_a_read_that_fails_now_and_then_is_counted_and_tried_again():
    host = FailingHost(files=recorded_host("hybrid_6_18").files)
    host.failing = set()
    feed = Memory().open(host, Scope())
    host.failing = {"/proc/meminfo"}
    assert "memory.free_bytes" not in values(feed.poll())
    host.failing = set()
    assert "memory.free_bytes" in values(feed.poll())
    assert feed.errors == {"meminfo": 1}
    assert feed.lost == []


def test_a_file_that_may_not_be_read_is_said_once():
    host = FailingHost(files=recorded_host("hybrid_6_18").files)
    host.failing = {"/proc/vmstat"}
    feed = Memory().open(host, Scope())
    assert [*map(str, feed.lost)] == ["memory: /proc/vmstat cannot be read here: Input/output error."]
    assert "memory.free_bytes" in values(feed.poll())


def test_what_is_only_read_at_a_tick_is_parsed_later_with_the_times_at_which_it_was_read():
    host = recorded_host("hybrid_6_18")
    feed = Cpu().open(host, Scope())
    at_once = feed.poll()
    let_time_pass(host)
    feed.take()
    first_ns = host.clock.now_ns()
    let_time_pass(host)
    feed.take()
    host.files["/proc/stat"] = "no such thing\n"
    feed.take()
    switches = [reading for reading in feed.taken() if reading.channel == "cpu.switches"]
    assert [reading.t_ns for reading in switches] == [first_ns, host.clock.now_ns()]
    assert all(reading.t_ns < first_ns for reading in at_once)
    assert feed.taken() == []


def test_a_parser_with_a_fault_of_its_own_costs_that_tick_and_no_other():
    class Parser:
        channels = (Channel("x", "1", "gauge"),)

        def __call__(self, t_ns, text):
            return [Reading(t_ns, "x", {"1": 1.0, "2": None}[text] + 1)]

    host = FakeHost({"/x": "1"})
    feed = FileFeed("p", host, [KernelFile("/x", lambda text: Parser())])
    for text in ("1", "2", "1"):
        host.files["/x"] = text
        feed.take()
    assert [reading.value for reading in feed.taken()] == [2.0, 2.0]
    assert feed.errors.total() == 1
