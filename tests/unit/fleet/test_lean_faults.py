"""What may go wrong on a device without tare, with this machine in its place: sensors, locks, files in the home."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from lean_devices import RUN_IT, a_host, with_words
from sshd_devices import until
from tare.base.errors import NotPermittedError
from tare.base.host import Job
from tare.drivers.guests.channel import GuestGone
from tare.fleet.on_device import Lines, owned_there
from tare_inside.agents import lean


@pytest.fixture(autouse=True)
def _in_its_place(pretended_ssh):
    """No test here reaches a network."""


def as_a_link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("stuck", ["at first", "at last"])
def test_a_sampler_that_hangs_in_a_sensor_does_not_keep_the_device_locked(stuck, tmp_path):
    sensor = tmp_path / "sensor"
    order = json.dumps({"period_ns": 100_000_000, "files": [[str(sensor), 1 << 62]]}).encode()
    with a_host(patience_s=12) as host:  # of which it listens ten seconds, also for a sampler that starts slowly
        folder = Path(host.line.said["inside"]).parent
        assert "busy" not in host._link.answer(host._link.begin("lock", device="abc", run="x", within_s=0)).header
        if stuck == "at last":
            host._link.ask("sample", order)
        os.mkfifo(sensor)  # to open it hangs until someone writes
        with pytest.raises(GuestGone):
            host._link.ask(*(("sampled",) if stuck == "at last" else ("sample", order)), within_s=60)
    lock = tmp_path / "locks" / "abc.lock"
    assert subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 0
    until(lambda: not with_words(str(folder)), "the sampler is gone", 60)
    assert not folder.exists()


@pytest.mark.parametrize("makes", [lambda path: path.chmod(0o777), as_a_link], ids=["open to all", "a link"])
def test_a_lock_in_a_folder_that_others_can_change_is_not_trusted(makes, tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))
    (tmp_path / "locks").mkdir(mode=0o700)
    makes(tmp_path / "locks")
    refusal = pytest.raises(NotPermittedError, match="not a folder that only its owner can write to")
    with refusal, a_host() as host, owned_there(host, Lines(), "us"):
        pass
    assert list((tmp_path / "locks").glob("*.lock")) == []


def test_a_lock_folder_is_trusted_where_it_is_roots_or_ours_and_not_where_it_is_another_users(tmp_path, monkeypatch):
    found = os.lstat(lean.private_folder(str(tmp_path / "locks")))
    assert stat.S_IMODE(found.st_mode) == 0o700
    for owner in (0, os.geteuid()):
        monkeypatch.setattr(os, "lstat", lambda path, uid=owner: SimpleNamespace(st_mode=found.st_mode, st_uid=uid))
        assert lean.private_folder(str(tmp_path / "locks"))
    monkeypatch.setattr(os, "lstat", lambda path: SimpleNamespace(st_mode=found.st_mode, st_uid=4321))
    with pytest.raises(lean.Untrusted):
        lean.private_folder(str(tmp_path / "locks"))


def test_what_lies_in_the_home_folder_there_is_not_run(tmp_path, pretended_ssh):
    for name in ("random", "json", "hashlib", "zlib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('another module was run')\n")
    pretended_ssh(f"cd {tmp_path}; HOME={tmp_path} PYTHONPATH={tmp_path}; export HOME PYTHONPATH; {RUN_IT}")
    with a_host() as host:
        host._link.ask("sample", json.dumps({"period_ns": 100_000_000, "files": []}).encode())
        assert host._link.ask("sampled").header["bytes"] > 0
        script = "import os, sys; print(os.environ.get('PYTHONPATH'), sys.flags.isolated)"
        job = Job((host.python, "-S", "-c", script), {"PATH": os.environ["PATH"]})
        assert host.spawn(job).wait(20).out == "None 0\n"  # workloads are started as they ever were
