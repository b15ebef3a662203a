"""What root reads in a folder that a container can write: a file of the folder's owner, whole, small, or nothing."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tare.base import untrusted
from tare.base.untrusted import Refused


def secret(folder: Path) -> Path:
    kept = folder.parent / "secret"
    kept.write_text('{"password": "hidden"}')
    kept.chmod(0o600)
    return kept


def link(folder: Path) -> None:
    (folder / "outcome.json").symlink_to(secret(folder))


def hard_link(folder: Path) -> None:
    (folder / "outcome.json").hardlink_to(secret(folder))


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "outcome.json")


def zeros(folder: Path) -> None:
    (folder / "outcome.json").symlink_to("/dev/zero")


def a_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "outcome.json"))


def large(folder: Path) -> None:
    with (folder / "outcome.json").open("wb") as file:
        file.truncate(1_200_000_000)


def deep(folder: Path) -> None:
    (folder / "outcome.json").write_text('{"a":' * 900 + "1" + "}" * 900)


def bottomless(folder: Path) -> None:
    (folder / "outcome.json").write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")


def many_values(folder: Path) -> None:
    (folder / "outcome.json").write_text(json.dumps({f"k{number}": [number] for number in range(60_000)}))


@pytest.mark.parametrize("attack", [link, hard_link, fifo, zeros, a_socket, large, deep, bottomless, many_values])
def test_what_is_no_plain_small_file_is_refused_at_once(tmp_path: Path, attack: Callable[[Path], None]):
    folder = tmp_path / "work"
    folder.mkdir()
    attack(folder)
    begun_s = time.thread_time()
    with pytest.raises(Refused, match=r"outcome\.json") as refused:
        untrusted.read_object(folder, "outcome.json")
    assert time.thread_time() - begun_s < 50
    assert "hidden" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path):
    (tmp_path / "outcome.json").write_text("{}")
    os.chown(tmp_path / "outcome.json", 12345, 12345)
    with pytest.raises(Refused, match="user 12345"):
        untrusted.read_object(tmp_path, "outcome.json")


def test_a_folder_on_the_way_that_is_a_link_is_refused(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_text("x")
    (tmp_path / "work").mkdir()
    (tmp_path / "work/sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused):
        untrusted.read(tmp_path / "work", "sub/file")
    with pytest.raises(Refused):
        untrusted.put(tmp_path / "work", "sub/new", [b"x"], 0o600)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Not a directory"):
        untrusted.read(tmp_path / "link", "file")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "", "."])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str):
    with pytest.raises(Refused, match="leads out"):
        untrusted.read(tmp_path, name)


def test_what_we_make_is_never_written_through_a_link(tmp_path: Path):
    folder, target = tmp_path / "work", tmp_path / "created"
    folder.mkdir()
    (folder / "go").symlink_to(target)
    with pytest.raises(Refused, match="only tare makes it"):
        untrusted.make(folder, "go")
    untrusted.replace(folder, "go", b"ours")
    assert not target.exists()
    assert not (folder / "go").is_symlink()
    assert (folder / "go").read_bytes() == b"ours"


def test_what_is_plain_is_read(tmp_path: Path):
    untrusted.make(tmp_path, "outcome.json", json.dumps({"loss": [1, {"a": None}]}).encode())
    assert untrusted.read_object(tmp_path, "outcome.json") == {"loss": [1, {"a": None}]}
    assert untrusted.read_object(tmp_path, "missing") == {}
    assert untrusted.tail(tmp_path, "outcome.json", 3) == b"}]}"
    (tmp_path / "torn").write_text('{"loss": [1,')
    assert untrusted.read_object(tmp_path, "torn") == {}
