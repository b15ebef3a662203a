"""devices.yaml: what it says, and what is said about it.

Inventories of fleets as large as we say that they may be.
"""

from __future__ import annotations

import pytest

from tare.base.errors import StudyError
from tare.fleet.inventory import MOST_DEVICES, jump_of, load_inventory, parse_inventory

GOOD = """\
devices:
  - name: orin-1
    address: 192.168.7.11
    user: root
    port: 2222
    type: orin-agx
    tags: [lab-2]
    python: /usr/bin/python3.6
    tare: /opt/tare/bin/python
    jump: me@gate.example:22
    known_hosts: hosts
  - {name: nano-1, address: nano-1.lab}
"""


def test_a_device_is_all_that_is_said_of_it_and_has_defaults_for_the_rest():
    orin, nano = parse_inventory(GOOD).devices
    assert (orin.user, orin.port, orin.type, orin.tags) == ("root", 2222, "orin-agx", ("lab-2",))
    assert (orin.python, orin.engine) == ("/usr/bin/python3.6", "/opt/tare/bin/python")
    assert (nano.python, nano.engine, nano.port, nano.type) == ("python3", "python3", None, None)


def test_paths_are_relative_to_the_file(tmp_path):
    path = tmp_path / "devices.yaml"
    path.write_text(GOOD)
    path.chmod(0o600)
    assert load_inventory(path).devices[0].known_hosts == tmp_path / "hosts"


def test_words_mean_names_types_and_tags():
    inventory = parse_inventory(GOOD)
    assert [one.name for one in inventory.called(["lab-2"])] == ["orin-1"]
    assert [one.name for one in inventory.called(["orin-agx", "nano-1"])] == ["orin-1", "nano-1"]
    assert len(inventory.called([])) == 2
    with pytest.raises(StudyError, match=r"no device is called 'nano-2'(.|\n)*Did you mean 'nano-1'"):
        inventory.called(["nano-2"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("devices:\n  - {name: a, adress: b}\n", r"devices.yaml:2: .*has no field 'adress'(.|\n)*mean 'address'"),
        ("devices:\n  - {name: a}\n", r"devices.yaml:2: .*needs 'address'"),
        ("devices:\n  - {name: a, address: b}\n  - {name: a, address: c}\n", r"devices.yaml:3: the name 'a' is given"),
        ("devices:\n  - {name: a, address: b}\n  - {name: c, address: b}\n", r":3: 'b' is the address of 'a' too"),
        ("devices:\n  - {name: a, address: -oProxyCommand=x}\n", r":2: .*is no address"),
        ("devices:\n  - {name: a, address: b, jump: -oProxyCommand=x}\n", r":2: .*is no jump host"),
        ("devices:\n  - {name: a, address: b, jump: 'a,b'}\n", r":2: .*'a,b' is more than one jump host; make a Host"),
        ("devices:\n  - {name: a, address: b, jump: 'fd00::1'}\n", r":2: .*'fd00::1' is no jump host; write it like"),
        ("devices:\n  - {name: a, address: b, jump: 'g:70000'}\n", r":2: .*'g:70000' is no jump host"),
        ("devices:\n  - {name: a, address: b, jump: 'me@-g'}\n", r":2: .*'me@-g' is no jump host"),
        ("devices:\n  - {name: a, address: b, user: -l}\n", r":2: .*is no user"),
        ("devices:\n  - {name: a, address: b, port: 70000}\n", r":2: .*at most 65535"),
        ("devices:\n  - {name: ../a, address: b}\n", r":2: .*is no name"),
        ("devices:\n  - {name: a, address: b, host_key: whatever}\n", r":2: .*is no host key"),
        ("devices:\n  - {name: a, address: b, python: -c}\n", r":2: .*no name of an interpreter"),
        ("devices: []\n", r":1: .*at least 1"),
        ("- a\n", r":1: An inventory is 'devices:'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text, says):
    with pytest.raises(StudyError, match=says):
        parse_inventory(text, "devices.yaml")


@pytest.mark.parametrize(
    ("jump", "means"),
    [
        ("gate", ("gate", None)),
        ("me@gate.example:2222", ("me@gate.example", "2222")),
        ("me@[fd00::1]:2222", ("me@fd00::1", "2222")),
        ("[fd00::1]", ("fd00::1", None)),
        ("me@corp.example@gate:22", ("me@corp.example@gate", "22")),
    ],
)
def test_a_jump_host_is_a_login_and_a_port_as_ssh_takes_them(jump, means):
    (device,) = parse_inventory(f"devices:\n  - {{name: a, address: b, jump: '{jump}'}}\n").devices
    assert jump_of(device.jump) == means


def entries(count: int) -> str:
    rows = (
        f"- {{name: dev-{n}, address: 10.1.{n // 250}.{n % 250}, user: root, port: 22, type: orin, tags: [lab, a]}}\n"
        for n in range(count)
    )
    return "devices:\n" + "".join(rows)


def test_hundreds_of_devices_with_all_that_is_said_of_them_are_read():
    assert len(parse_inventory(entries(500)).devices) == 500


def test_more_than_there_may_be_are_refused():
    with pytest.raises(StudyError):
        parse_inventory("devices:\n" + "".join(f"- {{name: d{n}, address: a{n}}}\n" for n in range(MOST_DEVICES + 1)))
