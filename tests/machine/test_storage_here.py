"""An emulated medium on this machine: as fast as it should be, and gone without a trace however its run ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import warm_tare
from driver_storage import THROUGH

from tare.base.host import LocalHost, Site
from tare.base.processes import mounts
from tare.drivers.storage import loop, placing
from tare.drivers.storage.residency import open_files
from tare.parts.controls.page_cache import Dirty
from tare.parts.controls.storage import Storage
from tare.parts.find import find
from tare.parts.platforms.bare import Bare
from tare.parts.protocols import Platform, TenantPlace
from tare.records.store import Store
from tare.trial.device import device_id
from tare.trial.undo.journal import Journal
from tare.trial.undo.knob import hold_controls, settle_controls
from tare.trial.undo.restoration import restore

DRIVER = Path(__file__).with_name("driver_storage.py")
PLATFORMS = [
    *(pytest.param(name, marks=pytest.mark.machine(name)) for name in ("bare", "docker", "runc")),
    *(pytest.param(name, marks=[pytest.mark.machine(name), pytest.mark.deep]) for name in ("podman", "gvisor")),
]

# Reads as a loader does, through the page cache: a stream, and small files here and there. Prints bytes and files a s.
READER = """
import os, random, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])

def rate(read, skip_s=0.4):
    begin = time.monotonic()
    count, since = 0, None
    for size in read:
        now = time.monotonic()
        if since is None and now - begin > skip_s:
            count, since = 0, now
        elif since is not None:
            count += size
            if now - since > seconds:
                break
    return count / (now - since)

def stream():
    with open(folder + "/stream", "rb", buffering=0) as file:
        while True:
            size = len(file.read(1 << 16))
            if size == 0:
                return
            yield size

def small():
    names = sorted(os.listdir(folder + "/small"))
    random.Random(7).shuffle(names)
    for name in names:
        with open(folder + "/small/" + name, "rb") as file:
            file.read()
        yield 1

print(rate(stream()), rate(small()))
"""

pytestmark = [pytest.mark.machine("root"), pytest.mark.holds("media")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("storage") / "data"
    (folder / "small").mkdir(parents=True)
    (folder / "stream").write_bytes(os.urandom(48 << 20))
    for number in range(600):
        (folder / "small" / f"{number}.bin").write_bytes(os.urandom(4000))
    return folder


@contextmanager
def standing(control: Storage, platform: Platform, data: Path, tmp_path: Path) -> Iterator[tuple[TenantPlace, dict]]:
    """The medium in force around a place on a platform, as in a trial."""
    host, scratch = LocalHost(), tmp_path / "scratch"
    scratch.mkdir(parents=True)
    with ExitStack() as stack:
        hold_controls(stack, host, [control], [data], Journal(tmp_path / "device"))
        place = platform.open(host, Site(f"tare-st-{os.getpid()}-{platform.part_name()}", scratch, (data,)))
        stack.callback(place.close)
        tenant = TenantPlace(place, scratch, (data,))
        yield tenant, settle_controls(host, [control], [tenant])["storage"]


def left() -> list[str]:
    found = [mount.point for mount in mounts(LocalHost()) if placing.is_ours(mount)]
    return found + loop.pieces(LocalHost())


def read_rates(tenant: TenantPlace, data: Path) -> tuple[float, float]:
    """Bytes a second of a stream and small files a second, with nothing of either in memory before."""
    for descriptor in open_files([data]):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    done = tenant.place.run([tenant.place.python, "-c", READER, str(data), "1.5"], limit_s=120).checked()
    stream, small = map(float, done.out.split())
    return stream, small


@pytest.mark.alone
def test_an_emulated_sd_card_reads_at_its_limit_within_a_tenth(tmp_path: Path, data: Path):
    with standing(Storage(emulate="sd"), Bare(), data, tmp_path) as (_, said):
        (measured,) = said["measured"]
        assert measured["read_bps"] == pytest.approx(100e6, rel=0.1)
        assert measured["read_iops"] == pytest.approx(1500, rel=0.1)
        assert said["direct_io"] in (True, False)
    assert left() == []


@pytest.mark.parametrize("name", PLATFORMS)
def test_what_a_workload_reads_obeys_the_limits_on_every_platform(tmp_path: Path, data: Path, name: str):
    platform = find("platforms", name)()
    assert isinstance(platform, Platform)
    figures = {"read_bps": "10 MB/s", "read_iops": 150}
    with standing(Storage.model_validate({"emulate": figures}), platform, data, tmp_path) as (tenant, _):
        stream, small = read_rates(tenant, data)
    # Limits, and no rates to be reached: whoever else has the cores makes it slower. The test above looks at both ends.
    assert 0 < stream < 10e6 * 1.1
    assert 0 < small < 150 * 1.25  # without a limit it is thousands; a pause saves some up
    assert left() == []


def test_the_data_set_is_the_same_and_read_only_and_untouched_afterwards(tmp_path: Path, data: Path):
    before = {path.name: path.stat().st_mtime_ns for path in (data / "small").iterdir()}
    with standing(Storage(emulate={"read_bps": "200 MB/s"}), Bare(), data, tmp_path):  # type: ignore[arg-type]
        during = {path.name: path.stat().st_mtime_ns for path in (data / "small").iterdir()}
        with pytest.raises(OSError, match="Read-only"):
            (data / "new").write_bytes(b"")
    assert during == before == {path.name: path.stat().st_mtime_ns for path in (data / "small").iterdir()}


def test_a_real_path_is_bound_over_the_data_set_and_its_copy_stays(tmp_path: Path, data: Path):
    medium = tmp_path / "card"
    medium.mkdir()
    with standing(Storage(path=medium), Bare(), data, tmp_path) as (_, said):
        assert said == {"path": str(medium)}
        (copy,) = (medium / placing.KEPT).iterdir()
        assert (data / "stream").stat().st_ino == (copy / "stream").stat().st_ino
    assert (data / "stream").stat().st_ino != (copy / "stream").stat().st_ino
    assert left() == []


def driven(state: Path, data: Path, n: int) -> int:
    argv = [sys.executable, str(DRIVER), str(state), str(data), str(n)]
    return subprocess.run(argv, capture_output=True, timeout=120, check=False).returncode


def test_killed_before_any_of_its_commands_nothing_of_it_is_left_after_a_restore(tmp_path: Path):
    data, state = tmp_path / "data", tmp_path / "state"
    data.mkdir()
    (data / "a").write_bytes(b"a" * 5000)
    deaths, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        code = driven(state, data, deaths + 1)
        if code != -signal.SIGKILL:
            break
        deaths += 1
        report = restore(LocalHost(), Journal(state / "devices" / device_id(LocalHost())))
        assert report.clean, f"before command {deaths}: {report.sentences()}"
        assert left() == [], f"before command {deaths}"
        assert (data / "a").read_bytes() == b"a" * 5000
    assert code == THROUGH
    assert deaths >= 15
    assert left() == []


@pytest.mark.parametrize("verb", ["restore", pytest.param("clean", marks=pytest.mark.deep)])
def test_a_run_that_was_killed_leaves_no_loop_device_no_mount_and_no_throttle(tmp_path: Path, data: Path, verb: str):
    state = tmp_path / "state"
    argv = [sys.executable, str(DRIVER), str(state), str(data), "0"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        group = runner.stdout.readline().strip()
        folders = list(Path("/sys/fs/cgroup").glob(f"*/tare/{group}"))
        assert loop.pieces(LocalHost()) == ["image", "loop", "mount"]
        throttled = [path for folder in folders for path in folder.glob("*read_bps_device")]
        assert any(path.read_text() for path in throttled) or not throttled  # version 2 has another file
        assert group
        assert folders
        runner.kill()
    environment = {**os.environ, "TARE_STATE": str(state)}
    done = subprocess.run(
        [sys.executable, "-m", "tare.cli", "device", verb], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert left() == []
    assert not any(folder.exists() for folder in folders)


STUDY = """\
study: cold-card
platform: bare
workload:
  torch_train: {model: lenet5, items: 1600, batch: 16, workers: 1, epochs: 3, steps_per_epoch: 20, threads: 1}
control:
  page_cache: cold_every_epoch
  storage: {emulate: {read_bps: 4 MB/s}}
probes: [cgroup, disk, page_cache: {period: 100ms}]
repeat: 1
aa: false
"""


def test_a_study_on_a_slow_card_with_a_cold_cache_in_every_epoch(tmp_path: Path):
    (tmp_path / "study.yaml").write_text(STUDY)
    environment = {**os.environ, "TARE_DATA": str(tmp_path / "data")}

    def tare(*words: str) -> str:
        done = warm_tare.run(*words, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    tare("run", "study.yaml", "--output", "store", "--trust")
    (trial,) = json.loads(tare("show", "store", "--json"))["trials"]

    assert trial["state"] in ("ok", "suspect"), trial["reasons"]
    assert trial["facts"]["cold_epochs"]["shares"] == [0.0, 0.0, 0.0]
    assert trial["facts"]["settled"]["storage"]["measured"][0]["read_bps"] == pytest.approx(4e6, rel=0.1)
    assert trial["facts"]["controls"]["storage"]["medium"] == ["image", "loop", "mount"]
    with Store.open(tmp_path / "store") as store:
        series = {name: list(values) for name, (_, values) in store.readings(trial["trial"], trial["attempt"]).items()}
    read = series["disk.storage.read_bytes"]
    assert read[-1] - read[0] > 2e6  # each epoch reads most of 1.3 MB, though all but the first could be cached
    assert min(series["page_cache.share"]) < 0.5 < max(series["page_cache.share"])
    assert left() == []


@pytest.mark.holds("dirty")
def test_the_dirty_values_of_this_kernel_are_set_and_put_back_byte_for_byte(tmp_path: Path):
    files = sorted(Path("/proc/sys/vm").glob("dirty*"))
    before = {path: path.read_bytes() for path in files}
    host = LocalHost()
    for fields in ({"bytes": "1 GiB", "background_bytes": "256 MiB"}, {"ratio": "21 %", "expire": "29 s"}):
        with ExitStack() as stack:
            control = Dirty.model_validate(fields)
            held = hold_controls(stack, host, [control], [], Journal(tmp_path / "device"))
            assert held["dirty"] == control.read(host) != {path.name: before[path].decode().strip() for path in files}
        assert {path: path.read_bytes() for path in files} == before
