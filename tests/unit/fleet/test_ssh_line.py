"""The one question to a device: how ssh is called, what is read, what is said when it fails. No network is used."""

from __future__ import annotations

import io
import shlex
import tarfile
import time

import pytest

from lean_devices import KEY, RUN_IT
from tare.base.errors import StoreError
from tare.fleet import driving, ssh
from tare.fleet.driving import drive, here
from tare.fleet.incoming import unpack
from tare.fleet.inventory import Device
from tare.fleet.ssh import Refused, Unreachable, ask, clock, command_line


def a_device(**changes):
    return Device(**{"name": "d", "address": "10.0.0.2", "host_key": KEY} | changes)


def test_an_unknown_host_key_is_never_learnt_and_nothing_is_forwarded(tmp_path):
    words = command_line(a_device(port=2222, user="root", jump="gate"), ["python3", "-c", "a b"], 10, str(tmp_path))
    options = [words[index + 1] for index, word in enumerate(words) if word == "-o"]
    assert {"StrictHostKeyChecking=yes", "BatchMode=yes", "ForwardAgent=no", "ClearAllForwardings=yes"} <= set(options)
    assert words[-3:] == ["--", "10.0.0.2", "python3 -c 'a b'"]
    assert "ControlPath=none" in options  # nor is a connection used whose host key another has looked at


def test_a_jump_host_is_reached_by_the_same_rules_whether_its_key_is_given_or_not(tmp_path):
    for fields in ({}, {"jump_host_key": KEY}):
        words = command_line(a_device(jump="gate", key="/keys/fleet", **fields), ["true"], 10, str(tmp_path))
        assert "-J" not in words  # by which ssh passes none of these on
        (proxy,) = [word.removeprefix("ProxyCommand=") for word in words if word.startswith("ProxyCommand=")]
        there = shlex.split(proxy)
        options = {there[index + 1] for index, word in enumerate(there) if word == "-o"}
        assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "ForwardAgent=no", "ControlPath=none"} <= options
        assert "-p" not in there  # its own Host of ~/.ssh/config may say another
        assert any(option.startswith("UserKnownHostsFile") for option in options) == bool(fields)
        assert any(option.startswith("IdentityFile") for option in options) == bool(fields)
        assert there[-3:] == ["-W", "[%h]:%p", "gate"]


def test_a_jump_host_whose_key_is_given_is_logged_in_to_like_the_device_and_its_key_is_checked(tmp_path):
    device = a_device(jump="me@gate.example:2222", jump_host_key=KEY, key="/keys/fleet")
    words = command_line(device, ["true"], 10, str(tmp_path))
    (proxy,) = [word for word in words if word.startswith("ProxyCommand=")]
    assert proxy.endswith("-p 2222 -W '[%h]:%p' me@gate.example")
    for option in (
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
        'IdentityFile="/keys/fleet"',
        "HostKeyAlias=tare-jump",
    ):
        assert option in proxy
    assert (tmp_path / "jump_known_hosts").read_text() == f"tare-jump {KEY}\n"
    assert "-J" not in words


def test_the_host_key_is_that_of_the_device_whatever_its_address_stands_for(tmp_path):
    words = command_line(a_device(address="an-alias", port=2222), ["true"], 10, str(tmp_path))
    assert "HostKeyAlias=tare-d" in words
    assert (tmp_path / "known_hosts").read_text() == f"tare-d {KEY}\n"


def test_paths_with_blanks_and_percent_signs_are_one_path_to_ssh(tmp_path):
    folder = tmp_path / "a b 100%h"
    folder.mkdir()
    device = a_device(key=str(folder / "id"), jump="gate.example", jump_host_key=KEY)
    words = command_line(device, ["true"], 10, str(folder))
    told = str(folder).replace("%", "%%")
    assert {f'IdentityFile="{told}/id"', f'UserKnownHostsFile="{told}/known_hosts"'} <= set(words)
    (proxy,) = [word.removeprefix("ProxyCommand=") for word in words if word.startswith("ProxyCommand=")]
    assert f'IdentityFile="{told}/id"' in shlex.split(proxy.replace("%%", "%"))  # as ssh hands it to a shell


def test_the_remote_shell_sees_every_word_as_one():
    words = command_line(a_device(), ["python3", "-c", "x; rm -rf $HOME `id`"], 10, "/tmp")
    assert shlex.split(words[-1]) == ["python3", "-c", "x; rm -rf $HOME `id`"]


def test_the_agent_is_copied_and_answers_after_whatever_a_login_script_says(pretended_ssh, tmp_path):
    pretended_ssh(RUN_IT)
    answer = ask(a_device(), {"do": "engine", "engine": "no-such-python", "arguments": []})
    assert answer.said["code"] == 127
    (copied,) = (tmp_path / "cache" / "tare").iterdir()
    ask(a_device(), {"do": "engine", "engine": "no-such-python", "arguments": []})
    assert list((tmp_path / "cache" / "tare").iterdir()) == [copied]


def test_the_clock_of_this_machine_is_not_ahead_of_itself(pretended_ssh):
    pretended_ssh(RUN_IT)
    offset_s, within_s = clock(a_device())
    assert abs(offset_s) <= within_s < 60


@pytest.mark.parametrize(
    ("script", "error", "says"),
    [
        ("echo 'Connection timed out' >&2; exit 255", Unreachable, "no line to 10.0.0.2: Connection timed out"),
        ("echo 'Host key verification failed.' >&2; exit 255", Refused, "ssh was refused"),
        ("echo 'root@d: Permission denied (publickey).' >&2; exit 255", Refused, "ssh was refused"),
        ("echo 'python3: not found' >&2; exit 127", Refused, "did not run what was sent"),
        ("echo 'ssh: Could not resolve hostname d: Temporary failure' >&2; exit 255", Unreachable, "no line"),
        ("echo 'sh: python3: Permission denied' >&2; exit 126", Refused, "did not run what was sent"),
        ("cat >/dev/null; printf 'tare-agent\\n{\"co'; exit 255", Unreachable, "no line"),
    ],
)
def test_each_way_to_fail_has_its_own_words(pretended_ssh, script, error, says):
    pretended_ssh(script)
    with pytest.raises(error, match=says):
        ask(a_device(), {"do": "look", "engine": "x"})


def test_an_ssh_that_neither_speaks_nor_ends_is_ended(pretended_ssh, monkeypatch):
    monkeypatch.setattr(ssh, "_ENDS_WITHIN_S", 0.2)
    pretended_ssh("echo tare-agent; echo no json; exec sleep 4325")
    start_s = time.monotonic()
    with pytest.raises(Unreachable):
        ask(a_device(), {"do": "look", "engine": "x"})
    assert time.monotonic() - start_s < 120


def test_a_broken_line_is_tried_again_and_a_refusal_is_not(pretended_ssh, tmp_path):
    count = tmp_path / "count"
    pretended_ssh(f"echo x >> {count}; test $(wc -l < {count}) -ge 3 || exit 255; {RUN_IT}")
    question = {"do": "engine", "engine": "no-such-python", "arguments": []}
    found = drive(a_device().model_dump(mode="json"), question, 6.0)
    assert (found["ended"], len(found["broken"])) == ("answered", 2)
    count.unlink()
    pretended_ssh(f"echo x >> {count}; echo Permission denied >&2; exit 255")
    assert drive(a_device().model_dump(mode="json"), question, 6.0)["ended"] == "refused"
    assert count.read_text() == "x\n"


def test_a_line_that_breaks_again_and_again_is_not_given_up_while_the_agent_is_heard_over_it(pretended_ssh, tmp_path):
    count = tmp_path / "count"
    breaks = "{ cat >/dev/null; echo tare-agent; sleep 0.2; exit 255; }"
    pretended_ssh(f"echo x >> {count}; test $(wc -l < {count}) -ge 6 || {breaks}; {RUN_IT}")
    found = drive(a_device().model_dump(mode="json"), {"do": "engine", "engine": "no", "arguments": []}, 1.0)
    assert (found["ended"], len(found["broken"])) == ("answered", 5)


def test_a_line_that_never_holds_long_enough_is_given_up_at_last(pretended_ssh, monkeypatch):
    monkeypatch.setattr(driving, "_MOST_BREAKS", 3)
    pretended_ssh("cat >/dev/null; echo tare-agent; exit 255")
    found = drive(a_device().model_dump(mode="json"), {"do": "look"}, 1.0)
    assert (found["ended"], len(found["broken"])) == ("unreachable", 3)


def test_a_device_cannot_fill_our_memory(pretended_ssh, monkeypatch):
    monkeypatch.setattr(ssh, "MOST_RECORD_BYTES", 3 << 20)
    sends = "cat >/dev/null; echo tare-agent; echo '{\"sends\": 1}'; head -c %d /dev/zero"
    pretended_ssh(sends % (3 << 20))
    assert len(ask(a_device(), {"do": "collect"}).records) == 3 << 20
    pretended_ssh(sends % ((3 << 20) + 1))
    with pytest.raises(Refused, match=r"more than 3 MiB of records(.|\n)*tare store merge"):
        ask(a_device(), {"do": "collect"})
    monkeypatch.setattr(ssh, "_MOST_LINE_BYTES", 1 << 16)
    pretended_ssh("cat >/dev/null; echo tare-agent; exec cat /dev/zero")
    with pytest.raises(Refused, match="longer than"):
        ask(a_device(), {"do": "collect"})


def test_what_lies_in_the_home_folder_there_is_not_run(pretended_ssh, tmp_path):
    home = tmp_path / "home"
    for folder in (home, tmp_path / "cache" / "tare"):
        folder.mkdir(parents=True)
        for name in ("json", "tarfile", "random", "fcntl"):
            (folder / f"{name}.py").write_text("raise SystemExit('another module was run')\n")
    pretended_ssh(f"cd {home}; HOME={home} PYTHONPATH={home}; export HOME PYTHONPATH; {RUN_IT}")
    assert ask(a_device(), {"do": "engine", "engine": "no-such-python", "arguments": []}).said["code"] == 127


def test_patience_ends(pretended_ssh):
    pretended_ssh("exit 255")
    found = drive(a_device().model_dump(mode="json"), {"do": "look"}, 1.0)
    assert found["ended"] == "unreachable"


def test_a_worker_that_is_its_own_device_needs_no_ssh(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = drive(here("w").model_dump(mode="json"), {"do": "collect", "store": "s-1", "have": []}, 1.0)
    assert (found["ended"], found["said"]["endings"]) == ("answered", [])


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a.1/../../x", "a.1/b/c", ".tmp/x"])
def test_a_device_cannot_write_outside_of_where_its_trials_go(name):
    with pytest.raises(StoreError, match="no file of a sealed trial"):
        unpack(_tar(tarfile.TarInfo(name)))


def test_a_link_in_what_a_device_sends_is_refused():
    link = tarfile.TarInfo("a.1/record.json")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(StoreError):
        unpack(_tar(link))


def _tar(member: tarfile.TarInfo) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(member)
    return made.getvalue()
