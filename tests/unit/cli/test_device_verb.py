"""`tare device data`: what is said on the screen and in JSON, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from knobs import DEAD
from tare.base import host as hosts
from tare.base.errors import NotPermittedError
from tare.base.files import state_dir
from tare.base.host import LocalHost
from tare.cli.device import command, supported
from tare.drivers.power import everything
from tare.drivers.storage.data_sets import synthetic_folder
from tare.parts.controls.power import PowerMode
from tare.testing import FakeHost
from tare.trial.device import DeviceLock, device_id
from tare.trial.undo.journal import Journal
from tare_inside import named
from tare_inside.workloads.data import cifar10, mnist
from tare_inside.workloads.formats import make
from trees.jetson import agx_xavier, nano
from trees.kernel import Kernel
from trees.server import x86
from typed import typed

TUPLE = PowerMode(cores=4, cpu_mhz=1200)
everything.backends()  # loaded before any test puts another LocalHost into their way


@pytest.fixture
def xavier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """The device of the verbs is a pretended board."""
    kernel = Kernel(agx_xavier(tmp_path / "root"))
    monkeypatch.setattr(hosts, "LocalHost", lambda: kernel)
    return kernel


def left_changed(host: Kernel) -> None:
    """A run has died in the middle."""
    journal = Journal(state_dir() / "devices" / device_id(host), "out/modes", owner=DEAD)
    journal.note_knob(TUPLE, TUPLE.read(host), TUPLE.target(host, []))
    TUPLE.write(host, TUPLE.target(host, []))


def said(*arguments: str) -> str:
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_device_as_found_says_so(xavier: Kernel):
    assert json.loads(said("status", "--json"))["changed"] == 0
    assert said("status") == ""


def test_status_names_each_setting_that_stands_otherwise_and_whose_run_it_was(xavier: Kernel):
    left_changed(xavier)
    shown = json.loads(said("status", "--json"))
    assert shown["changed"] == 1
    (row,) = shown["knobs"]
    assert (row["baseline"]["cores.cpu7"], row["now"]["cores.cpu7"], row["run"]) == ("1", "0", "out/modes")
    text = said("status")
    assert "cores.cpu7" in text
    assert f"pid {DEAD.pid}" in text
    assert "cores.cpu1 " not in text  # it stands as it was found


def test_restore_plans_first_and_then_puts_back(xavier: Kernel):
    left_changed(xavier)
    planned = json.loads(said("restore", "--dry-run", "--json"))
    assert "would be restored" in planned["planned"][0]
    assert json.loads(said("status", "--json"))["changed"] == 1
    assert json.loads(said("restore", "--json"))["clean"]
    assert json.loads(said("status", "--json")) | {"device": ""} == {
        "schema_version": 1, "device": "", "changed": 0, "knobs": [], "problems": [],
    }  # fmt: skip
    assert xavier.read("/sys/devices/system/cpu/online") == "0-7\n"


def test_a_plan_while_a_run_owns_the_device_says_whose_it_is_even_if_nothing_is_changed_yet(xavier: Kernel):
    with DeviceLock(state_dir(), device_id(xavier), "out/modes"):
        told = CliRunner().invoke(command, ["restore", "--dry-run"], catch_exceptions=False)
        plain = json.loads(said("restore", "--dry-run", "--json"))
    assert f"pid {os.getpid()}, run 'out/modes', owns this device" in told.stderr
    assert "Until it ends a restore is refused" in told.stderr
    assert "as it was found" not in told.stderr
    assert "run 'out/modes'" in plain["in_use"]
    assert "in_use" not in json.loads(said("restore", "--dry-run", "--json"))


def test_a_plan_shows_each_setting_on_a_line_of_its_own_and_no_json(xavier: Kernel):
    left_changed(xavier)
    told = CliRunner().invoke(command, ["restore", "--dry-run"], catch_exceptions=False)
    assert "{" not in told.output
    assert any(line.split()[:4] == ["power_mode", "cores.cpu7", "1", "0"] for line in told.stdout.splitlines())


def test_an_agx_xavier_has_8_x_29_x_14_x_9_modes(xavier: Kernel):
    shown = json.loads(said("modes", "--json"))
    counts = [len(shown["values"][field]) for field in ("cores", "cpu_mhz", "gpu_mhz", "mem_mhz")]
    assert counts == [8, 29, 14, 9]
    assert shown["combinations"] == 29_232
    assert shown["modes"] == ["MAXN", "MODE_10W", "MODE_15W", "MODE_30W_ALL"]
    assert "8 x 29 x 14 x 9 = 29,232 combinations" in said("modes")


def test_a_driver_that_takes_any_clock_says_from_where_to_where(tmp_path: Path):
    found = supported(LocalHost(root=x86(tmp_path)))
    assert found["values"]["cpu_mhz"] == {"from": 800.0, "to": 3600.0}
    assert found["combinations"] is None
    assert found["values"]["boost"] == [False, True]


def test_a_nano_and_a_device_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert supported(LocalHost(root=nano(tmp_path)))["modes"] == ["MAXN", "5W"]
    monkeypatch.setattr(hosts, "LocalHost", FakeHost)
    assert json.loads(said("modes", "--json")) == {"schema_version": 1, "modes": [], "values": {}, "combinations": None}
    assert said("modes") == ""


def test_a_user_from_whom_roots_journal_is_hidden_is_not_told_that_all_is_well(
    xavier: Kernel, monkeypatch: pytest.MonkeyPatch
):
    hidden = "what root's runs left is noted in /var/lib/tare, which only root can read"
    monkeypatch.setattr("tare.trial.device.out_of_sight", lambda: hidden)
    for arguments in (["restore"], ["restore", "--dry-run", "--json"]):
        done = CliRunner().invoke(command, arguments)
        assert isinstance(done.exception, NotPermittedError)
        assert done.exception.exit_code == 77
    told = CliRunner().invoke(command, ["status"], catch_exceptions=False)
    assert hidden in told.stderr
    assert "as it was found" not in told.stderr
    assert json.loads(said("status", "--json"))["out_of_sight"] == hidden


def tare(*words: str, code: int = 0, data: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = typed(*words, **({"TARE_DATA": str(data)} if data else {}))
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def test_every_data_set_is_listed_with_the_real_ones_size() -> None:
    rows = json.loads(tare("list", "data", "--json").stdout)["data_sets"]

    assert [row["name"] for row in rows] == named.names("data")
    assert next(row for row in rows if row["name"] == "gld23k")["items"] == 23080
    assert all(set(row) >= {"title", "kind", "format", "items", "bytes"} for row in rows)


def test_a_scale_is_a_share_of_the_real_ones_items(tmp_path: Path) -> None:
    said = json.loads(
        tare("device", "data", "make", "cifar10", "--scale", "0.001", str(tmp_path / "data"), "--json").stdout
    )

    assert (said["items"], said["seed"]) == (50, 0)
    assert len(cifar10.Dataset(str(tmp_path / "data"))) == 50


def test_without_a_folder_it_is_made_where_workloads_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tare("device", "data", "make", "mnist", "--items", "20", data=tmp_path)
    monkeypatch.setenv("TARE_DATA", str(tmp_path))

    assert len(mnist.Dataset(str(synthetic_folder("mnist", 20)))) == 20


def test_talk_goes_to_stderr(tmp_path: Path) -> None:
    done = tare("device", "data", "make", "mnist", "--items", "20", str(tmp_path / "data"))

    assert done.stderr.startswith("making MNIST in ")
    assert "MNIST, 20 items" in done.stdout


def test_on_a_terminal_there_is_a_bar(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = ["device", "data", "make", "cifar10", "--items", "50", str(tmp_path / "data")]
    env = dict(os.environ, TERM="xterm", COLUMNS="100")
    command = [sys.executable, "-m", "tare.cli", *words]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=theirs, timeout=120, env=env)
    os.close(theirs)
    drawn = os.read(ours, 65536).decode()
    os.close(ours)

    assert done.returncode == 0
    assert "50/50" in drawn
    assert "━" in drawn


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("make", "cifar"), 2, "No data set 'cifar'. Did you mean 'cifar10'? Available: cifar10, "),
        (("make", "cifar"), 2, "Did you mean 'cifar10'?"),
        (("make", "mnist", "--scale", "1", "--items", "5"), 2, "either --scale or --items"),
        (("make", "mnist", "--scale", "0"), 2, "--scale"),
        (("make", "mnist", "--items", "5", "HERE"), 2, "tare did not make what is in it"),
        (("make", "mnist", "--items", "5", "HERE/file/data"), 1, "Not a directory"),
        (("check", "HERE/nowhere"), 2, "no such folder"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    (tmp_path / "file").write_text("mine")

    assert said in tare("device", "data", *(word.replace("HERE", str(tmp_path)) for word in words), code=code).stderr


def test_a_whole_data_set_is_described(tmp_path: Path) -> None:
    make.make("cifar10", str(tmp_path), 50, 0)
    shown = tare("device", "data", "check", str(tmp_path)).stdout
    said = json.loads(tare("device", "data", "check", str(tmp_path), "--json").stdout)

    assert "CIFAR-10 (cifar-10-batches-py), synthetic, made by tare" in shown
    assert "50 items (the real one has 50,000)" in shown
    assert "nothing is broken" in shown
    assert (said["data"], said["items"], said["classes"], said["whole"]) == ("cifar10", 50, 10, True)


def test_one_that_was_not_made_by_tare_is_told_by_its_looks(tmp_path: Path) -> None:
    make.make("cifar10", str(tmp_path), 50, 0)
    for name in (make.MANIFEST, make.LISTING):
        (tmp_path / name).unlink()
    said = make.look(str(tmp_path))

    assert (said["data"], said["synthetic"], said["problems"]) == ("cifar10", False, [])


def test_what_is_broken_is_named_and_the_exit_says_so(tmp_path: Path) -> None:
    make.make("cifar10", str(tmp_path), 50, 0)
    top = tmp_path / "cifar-10-batches-py"
    (top / "data_batch_2").write_bytes(b"short")
    (top / "test_batch").unlink()
    content = (top / "data_batch_4").read_bytes()
    (top / "data_batch_4").write_bytes(content[:9000] + b"?" + content[9001:])
    shown = tare("device", "data", "check", str(tmp_path), code=1).stdout

    assert f"broken: {top}/data_batch_2: it has 5 bytes instead of " in shown
    assert f"broken: {top}/test_batch: it is missing." in shown
    assert f"broken: {top}/data_batch_4: it has been changed." in shown
    assert f"broken: {top}/data_batch_2: this is not a file of plain data" in shown


def test_one_that_is_not_finished_says_how_to_go_on(tmp_path: Path) -> None:
    make.claim(str(tmp_path / "data"), {"data": "cifar10", "count": 50, "seed": 3})
    [unfinished, empty] = make.look(str(tmp_path / "data"))["problems"]

    assert f"`tare device data make cifar10 --items 50 --seed 3 {tmp_path}/data` continues it." in unfinished
    assert "there is nothing in it of" in empty
    tare("device", "data", "make", "cifar10", "--items", "50", "--seed", "3", str(tmp_path / "data"))
    assert make.look(str(tmp_path / "data"))["problems"] == []


def test_an_empty_folder_is_not_whole(tmp_path: Path) -> None:
    assert "there is nothing in it of" in tare("device", "data", "check", str(tmp_path), code=1).stdout


@pytest.mark.parametrize("name", named.names("data"))
def test_each_data_set_is_recognised_as_itself_alone(tmp_path: Path, name: str) -> None:
    data = named.find("data", name)
    make.make(name, str(tmp_path), 4, 0, processes=1)

    assert [other for other in named.names("data") if named.find("data", other).recognise(str(tmp_path))] == [name]
    assert make.look(str(tmp_path))["problems"] == []
    assert data.obstacle(str(tmp_path), 1) is None
