import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tare.base.errors import TareError
from tare.base.host import (
    OUTPUT_LIMIT_BYTES,
    Host,
    Job,
    LocalHost,
    OwnDevice,
    WatchingHost,
    existing,
    kill,
    lacks_root,
    make_file,
    may_write,
    node_name,
)
from tare.testing import FakeHost


class Far(FakeHost):
    """This machine behind commands alone, as a container or another device is."""

    def run(self, argv, *, limit_s=60, stdin=""):
        self.asked.append(tuple(argv))
        return LocalHost().run(argv, limit_s=limit_s, stdin=stdin)


HERE_AND_FAR = pytest.mark.parametrize("host", [LocalHost(), Far()], ids=["here", "far"])


def test_a_command_is_an_argument_list_and_never_a_shell_string():
    assert LocalHost().run(["echo", "a; echo b", "$HOME"]).out == "a; echo b $HOME\n"


def test_a_command_that_is_not_there_is_an_answer_and_not_an_exception():
    done = LocalHost().run(["no-such-command-anywhere"])
    assert done.code == 127
    with pytest.raises(TareError, match="no-such-command-anywhere"):
        done.checked()


def test_a_command_past_its_limit_dies_with_its_whole_group():
    begin = time.monotonic()
    done = LocalHost().run(["sh", "-c", "sleep 3600 & sleep 3600"], limit_s=0.3)
    assert done.code == 124
    assert "no answer within 0.3 s" in done.err
    assert time.monotonic() - begin < 3000


def test_a_limit_of_ages_is_a_limit_like_any_other():
    assert [LocalHost().run(["true"], limit_s=limit_s).code for limit_s in (3e6, 1e10, float("inf"))] == [0, 0, 0]


@pytest.mark.parametrize("then", ["sleep 3600", "exit 0"])
def test_a_child_that_left_the_group_and_holds_the_output_does_not_hold_us_past_the_limit(then: str):
    for limit_s in (1, 15):
        begin = time.monotonic()
        done = LocalHost().run(["sh", "-c", f"setsid sh -c 'echo $$; exec sleep 3600' & {then}"], limit_s=limit_s)
        if done.out:  # else a busy machine had not begun it yet
            break
    assert time.monotonic() - begin < 3000
    assert done.code == 124
    os.kill(int(done.out), signal.SIGTERM)  # it still runs


def test_input_that_nobody_reads_is_no_error():
    assert LocalHost().run(["true"], stdin="x" * 300_000).code == 0
    assert LocalHost().run(["sleep", "8"], stdin="x" * 300_000, limit_s=0.2).code == 124


def test_a_job_gets_its_own_environment_and_nothing_of_ours(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_RUNNER", "1")
    ended = LocalHost().spawn(Job(("/usr/bin/env",), {"ONLY": "this"})).wait(60)
    assert ended.out.strip() == "ONLY=this"


def test_a_job_past_its_limit_is_killed_and_says_so():
    ended = LocalHost().spawn(Job(("/bin/sleep", "60"))).wait(0.2)
    assert ended.timed_out
    assert ended.code != 0


def test_a_job_that_prints_without_end_is_cut_and_does_not_block():
    ended = LocalHost().spawn(Job(("/usr/bin/head", "-c", str(3 * OUTPUT_LIMIT_BYTES), "/dev/zero"))).wait(20)
    assert ended.code == 0
    assert ended.truncated
    assert len(ended.out) == OUTPUT_LIMIT_BYTES


def test_a_kernel_file_is_written_but_never_made(tmp_path):
    host = LocalHost(root=tmp_path)
    with pytest.raises(FileNotFoundError):
        host.write("/sys/knob", "1")
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys/knob").write_text("a longer old value")
    host.write("/sys/knob", "1")
    assert host.read("/sys/knob") == "1"


def test_the_watching_host_reads_one_open_file_again_and_again(tmp_path):
    path = tmp_path / "stat"
    path.write_text("1")
    host = WatchingHost(root=tmp_path)
    assert host.read("/stat") == "1"
    opened = _open_files(path)
    path.write_text("22" * 50_000)
    assert host.read("/stat") == "22" * 50_000
    assert _open_files(path) == opened == 1
    host.close()
    assert _open_files(path) == 0


def _open_files(path: Path) -> int:
    links = list(Path("/proc/self/fd").iterdir())
    return sum(link.is_symlink() and link.readlink() == path for link in links)


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_kernel_file_that_is_handed_out_a_page_at_a_time_is_read_whole():
    host = WatchingHost()
    path = "/proc/self/smaps"
    descriptor = os.open(path, os.O_RDONLY)
    first = os.pread(descriptor, 1 << 20, 0)
    os.close(descriptor)
    assert b"[stack]" not in first  # one read is not all of it, however much is asked for
    assert "[stack]" in host.read(path)
    host.close()


def test_the_file_of_a_process_that_ended_does_not_stay_open():
    host = WatchingHost()
    with subprocess.Popen(["sleep", "60"]) as child:
        host.read(f"/proc/{child.pid}/status")
        before = open_files()
        child.kill()
    with pytest.raises(OSError):
        host.read(f"/proc/{child.pid}/status")
    assert open_files() == before - 1
    with pytest.raises(FileNotFoundError):
        host.read(f"/proc/{child.pid}/status")
    host.close()


def test_only_the_device_itself_is_our_own():
    assert isinstance(LocalHost(), OwnDevice)
    assert isinstance(WatchingHost(), OwnDevice)
    assert not isinstance(FakeHost(), OwnDevice)


@HERE_AND_FAR
def test_a_new_file_is_made_with_its_text(host: Host, tmp_path: Path):
    make_file(host, str(tmp_path / "new"), "a text,\nof two lines")
    assert (tmp_path / "new").read_text() == "a text,\nof two lines"


@HERE_AND_FAR
def test_paths_that_are_there_are_named_with_where_they_lead(host: Host, tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "lost").symlink_to("nowhere")
    paths = [str(tmp_path / name) for name in ("link", "lost", "none", "file")]
    assert existing(host, paths) == [paths[0], paths[3]]


@HERE_AND_FAR
def test_what_is_killed_ends_and_what_is_gone_is_no_error(host: Host):
    with subprocess.Popen(["sleep", "60"]) as child:
        kill(host, {child.pid})
        assert child.wait(10) == -9
    kill(host, {2**22 + 1})  # beyond the last number that Linux gives
    kill(host, set())


@HERE_AND_FAR
def test_the_name_of_the_device_is_its_own(host: Host):
    assert node_name(host) == os.uname().nodename


def test_no_command_is_started_on_the_device_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(LocalHost, "run", lambda self, argv, **options: pytest.fail(f"{argv} was started"))
    device = LocalHost()
    make_file(device, str(tmp_path / "new"), "")
    existing(device, [str(tmp_path)])
    kill(device, set())
    assert node_name(device)


def test_only_of_the_device_itself_it_is_known_what_we_may_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert lacks_root(LocalHost())
    assert not may_write(LocalHost(), str(tmp_path / "none"))
    assert not lacks_root(FakeHost())
    assert may_write(FakeHost(), str(tmp_path / "none"))


def test_a_made_up_device_has_its_files_below_its_root(tmp_path: Path):
    assert LocalHost(root=tmp_path).file("/proc/stat") == tmp_path / "proc/stat"
