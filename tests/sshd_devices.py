"""Devices that are not there: each an sshd with a network, mounts, processes and a disk of its own, on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from old_pythons import interpreters

_SETUP = """\
set -e
folder=$1
while [ ! -e "$folder/network" ]; do sleep 0.02; done
ip link set lo up
mount --make-rprivate /
mount -t tmpfs -o mode=755 tare-run /run
mount -t tmpfs -o mode=1777 tare-shm /dev/shm
mkdir -p /run/sshd /run/lock
mkdir -p /var/lib/tare
if [ "$2" = kept ]; then mount --bind "$folder/disk" /var/lib/tare
else mount -t tmpfs -o mode=700,size=$2 tare-state /var/lib/tare; fi
mount --bind "$folder/machine-id" /etc/machine-id
while read -r knob file value; do
    echo "$value" > "/proc/sys/net/ipv4/conf/$file"
    mount --bind "/proc/sys/net/ipv4/conf/$file" "/proc/sys/vm/$knob"
done < "$folder/knobs"
/usr/sbin/sshd -D -e -f "$folder/sshd_config" &
while :; do wait; sleep 0.2; done
"""

# In the place of the kernel's own, so that a device's knobs are its own too.
KNOBS = {
    "dirty_ratio": "20",
    "dirty_bytes": "0",
    "dirty_background_ratio": "10",
    "dirty_background_bytes": "0",
    "dirty_expire_centisecs": "3000",
    "dirty_writeback_centisecs": "500",
}
# Numbers of a network's own that mean nothing here. They are the kernel's, which takes a value whole: a plain file is
# empty between the opening and the write, and stays so if the writer is killed there.
_NUMBERS = [f"{link}/{number}" for link in ("lo", "all", "eth0") for number in ("tag", "medium_id")]


_NAMESPACES = {"net": "net", "mount": "mnt", "pid": "pid"}


class SshDevice:
    """One of them. `cut` and `mend` are its network cable; a disk that is `kept` outlives a power cut."""

    def __init__(self, name: str, number: int, folder: Path, client_key: Path, disk: str) -> None:
        self.name = name
        self.folder = folder
        self.link = f"tf{os.getpid() % 10**6}x{number}"
        net = f"10.231.{os.getpid() % 250}."
        self.near, self.address = f"{net}{4 * number + 1}", f"{net}{4 * number + 2}"
        self._disk = disk
        folder.mkdir()
        (folder / "machine-id").write_text(f"{number + 1:x}{os.urandom(15).hex()}a\n"[:33])
        (folder / "boot").write_text(_SETUP)
        (folder / "disk").mkdir(mode=0o700)
        self._keep(KNOBS)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host"))
        self.host_key = " ".join((folder / "host.pub").read_text().split()[:2])
        (folder / "sshd_config").write_text(
            f"ListenAddress 0.0.0.0\nHostKey {folder}/host\nPidFile none\nUsePAM no\nStrictModes no\n"
            f"AuthorizedKeysFile {client_key}.pub\nPasswordAuthentication no\nPermitRootLogin yes\n"
            "SetEnv XDG_CACHE_HOME=/var/lib/tare/cache\n"
        )
        self.start()

    def start(self) -> None:
        """Power on. What was on its disk is gone where the disk is memory."""
        (self.folder / "sshd.log").unlink(missing_ok=True)
        (self.folder / "network").unlink(missing_ok=True)
        log = (self.folder / "sshd.log").open("ab")
        self._machine = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL",  # a test that is killed leaves no device behind
             "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
             "sh", str(self.folder / "boot"), str(self.folder), self._disk],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        log.close()
        self._wire()
        until(lambda: b"Server listening" in (self.folder / "sshd.log").read_bytes(), "its sshd listens")

    def _wire(self) -> None:
        own = Path("/proc/self/ns/net").readlink()
        there = Path(f"/proc/{self._machine.pid}/ns/net")
        until(lambda: there.readlink() != own, "it has a network of its own")
        _run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self._machine.pid))
        _run("ip", "addr", "add", f"{self.near}/30", "dev", self.link)
        _run("ip", "link", "set", self.link, "up")
        self.inside("ip", "addr", "add", f"{self.address}/30", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")
        (self.folder / "network").touch()

    def inside(self, *argv: str) -> str:
        """Run a command on the device, past its network."""
        pid = self._init() or self._machine.pid
        words = ["nsenter", f"--net=/proc/{pid}/ns/net", f"--mount=/proc/{pid}/ns/mnt"]
        words += [f"--pid=/proc/{pid}/ns/pid_for_children"] if self._init() else []
        return _run(*words, *argv)

    def _init(self) -> int | None:
        children = Path(f"/proc/{self._machine.pid}/task/{self._machine.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def knobs(self) -> dict[str, str]:
        """How they stand, or stood when its power was cut."""
        if self._machine.poll() is not None:
            return {knob: value for knob, _, value in map(str.split, (self.folder / "knobs").read_text().splitlines())}
        there = Path(f"/proc/{self._init()}/root/proc/sys/vm")
        return {knob: (there / knob).read_text().strip() for knob in KNOBS}

    def _keep(self, knobs: Mapping[str, str]) -> None:
        lines = [f"{knob} {number} {knobs[knob]}\n" for knob, number in zip(KNOBS, _NUMBERS, strict=True)]
        (self.folder / "knobs").write_text("".join(lines))

    def pids(self, words: str) -> list[int]:
        """Processes on the device whose command line, after a blank, has these words; as the device numbers them."""
        said = self.inside("ps", "-eww", "-o", "pid,args", "--no-headers")
        said = said.replace(str(self.folder), "")  # where the tests' own folder lies says nothing about a process
        return [int(line.split()[0]) for line in said.splitlines() if words in line and "ps -eww" not in line]

    def kill(self, words: str) -> int:
        found = self.pids(words)
        for pid in found:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.inside("kill", "-9", str(pid))
        return len(found)

    def begin(self, *argv: str) -> subprocess.Popen[bytes]:
        """Start a command on the device, past its network."""
        pid = self._init()
        words = [
            "nsenter",
            f"--net=/proc/{pid}/ns/net",
            f"--mount=/proc/{pid}/ns/mnt",
            "--pid=" + f"/proc/{pid}/ns/pid",
        ]
        return subprocess.Popen([*words, *argv], stdin=subprocess.DEVNULL)

    def wire_to(self, other: SshDevice) -> str:
        """A cable between two devices; returns the other's address at its end, which nobody else can reach."""
        net = f"10.232.{os.getpid() % 250}."
        _run("ip", "link", "add", "side", "netns", str(self._init()), "type", "veth",
             "peer", "name", "side", "netns", str(other._init()))  # fmt: skip
        for number, device in enumerate((self, other), start=1):
            device.inside("ip", "addr", "add", f"{net}{number}/30", "dev", "side")
            device.inside("ip", "link", "set", "side", "up")
        return f"{net}2"

    def restart_sshd(self) -> None:
        self.inside("/usr/sbin/sshd", "-f", str(self.folder / "sshd_config"))

    def cut(self) -> None:
        _run("ip", "link", "set", self.link, "down")

    def mend(self) -> None:
        _run("ip", "link", "set", self.link, "up")

    def stores(self) -> list[str]:
        return self.inside("sh", "-c", "ls /var/lib/tare/fleet/stores/*/trials").split()

    def stop(self) -> None:
        """Power off, at once; what its knobs stood at is there again when it starts."""
        self._keep(self.knobs())
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._machine.pid, signal.SIGKILL)
        self._machine.wait()
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("ip", "link", "del", self.link)


class Fleet:
    """A few of them, and the inventory that names them."""

    def __init__(self, folder: Path, names: tuple[str, ...], disk: str = "400m") -> None:
        self.folder = folder
        self.key = folder / "client"
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        self.devices: dict[str, SshDevice] = {}
        try:
            for number, name in enumerate(names):
                self.devices[name] = SshDevice(name, number, folder / name, self.key, disk)
        except BaseException:
            self.close()
            raise
        self.inventory = folder / "devices.yaml"
        self.write()

    def write(self, **changes: dict[str, Any]) -> None:
        """The inventory; `changes` are fields of a device, by its name."""
        lines = ["devices:"]
        for name, device in self.devices.items():
            fields: dict[str, Any] = {"name": name, "address": device.address, "user": "root", "type": "pretended"}
            fields |= {"python": sys.executable, "key": "client", "host_key": device.host_key}
            fields |= changes.get(name, {})
            lines += [
                f"  - {key}: {value}" if key == "name" else f"    {key}: {value}" for key, value in fields.items()
            ]
        self.inventory.write_text("\n".join(lines) + "\n")
        self.inventory.chmod(0o600)

    def close(self) -> None:
        for device in self.devices.values():
            device.stop()


@contextlib.contextmanager
def fleet(folder: Path, *names: str, disk: str = "400m") -> Iterator[Fleet]:
    made = Fleet(folder, names, disk)
    try:
        yield made
    finally:
        made.close()


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30).stdout


def until(true: Any, what: str, within_s: float = 15.0) -> None:
    end_s = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end_s:
            raise AssertionError(f"it took longer than {within_s:g} s until {what}")
        time.sleep(0.05)


def python36() -> Path | None:
    """An interpreter as old boards have it."""
    found = [*interpreters("3.6.*"), shutil.which("python3.6")]
    return next((Path(path) for path in found if path), None)


def without_tare() -> Path:
    """An interpreter that has no tare."""
    return python36() or Path("/usr/bin/python3")


def obstacles() -> list[str]:
    """Why there can be no such devices here."""
    if os.geteuid() != 0:
        return ["devices with a network of their own need root."]
    tools = ("ssh", "ssh-keygen", "ip", "unshare", "nsenter", "setpriv")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    missing += [] if Path("/usr/sbin/sshd").exists() else ["sshd"]
    return [f"there is no {tool} on this machine." for tool in missing]
