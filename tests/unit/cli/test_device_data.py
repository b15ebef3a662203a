"""`tare device data`: what is said on the screen and in JSON, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tare.drivers.storage.folders import synthetic_folder
from tare_inside import named
from tare_inside.data import cifar10, mnist
from tare_inside.making import make, manifest
from typed import typed


def tare(*words: str, code: int = 0, data: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = typed(*words, **({"TARE_DATA": str(data)} if data else {}))
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def test_every_data_set_is_listed_with_the_real_ones_size() -> None:
    rows = json.loads(tare("list", "data", "--json").stdout)

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
        (("make", "cifar"), 2, "No data set 'cifar'. Available: cifar10, "),
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
    cifar10.make(str(tmp_path), 50, 0)
    shown = tare("device", "data", "check", str(tmp_path)).stdout
    said = json.loads(tare("device", "data", "check", str(tmp_path), "--json").stdout)

    assert "CIFAR-10 (cifar-10-batches-py), synthetic, made by tare" in shown
    assert "50 items (the real one has 50,000)" in shown
    assert "nothing is broken" in shown
    assert (said["data"], said["items"], said["classes"], said["whole"]) == ("cifar10", 50, 10, True)


def test_one_that_was_not_made_by_tare_is_told_by_its_looks(tmp_path: Path) -> None:
    cifar10.make(str(tmp_path), 50, 0)
    for name in (manifest.MANIFEST, manifest.LISTING):
        (tmp_path / name).unlink()
    said = make.look(str(tmp_path))

    assert (said["data"], said["synthetic"], said["problems"]) == ("cifar10", False, [])


def test_what_is_broken_is_named_and_the_exit_says_so(tmp_path: Path) -> None:
    cifar10.make(str(tmp_path), 50, 0)
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
    manifest.claim(str(tmp_path / "data"), {"data": "cifar10", "count": 50, "seed": 3})
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
    data.make(str(tmp_path), 4, 0, processes=1)

    assert [other for other in named.names("data") if named.find("data", other).recognise(str(tmp_path))] == [name]
    assert make.look(str(tmp_path))["problems"] == []
    assert data.obstacle(str(tmp_path), 1) is None
    assert data.folder_name(4, 0) == f"{name}-4-0"
