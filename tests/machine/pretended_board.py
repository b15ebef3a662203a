"""A Jetson AGX Xavier in a mount namespace: its files lie over this machine's, and nobody else sees them.

What `tare` reads and writes there at /sys, /proc/sys/vm, /etc/nvpmodel.conf and the boot id are plain files below a
folder; `nvpmodel` and `jetson_clocks` are real commands that act on the same files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from trees import commands
from trees.jetson import agx_xavier

DRIVER = Path(__file__).with_name("driver_board.py")
OVERRIDE = "sys/kernel/debug/emc_override"  # what jetson_clocks keeps for itself
STATUS = "var/lib/nvpmodel/status"
DEATH = 400  # the call at which strace kills
BOOT = "0b0e7c1e-7f5e-4a4b-9c56-3f6a9f1d2c01"
STUDY = """\
study: killed
platform: bare
workload: "null"
control:
  power_mode: [MODE_15W, {cores: 4, cpu_mhz: 1200, gpu_mhz: 670, mem_mhz: 1333}]
  dvfs: off
  dirty: {bytes: 64 MiB, background_bytes: 16 MiB, expire: 10 s}
  fan: 60
probes: []
repeat: 1
aa: false
"""
_ENTER = """\
set -e
root=$1
shift
mount -t overlay -o lowerdir="$root/etc:/etc" overlay /etc
mount --rbind /sys/fs "$root/sys/fs"
mount --rbind "$root/sys" /sys
mount --bind "$root/proc/sys/vm" /proc/sys/vm
mount --bind "$root/boot_id" /proc/sys/kernel/random/boot_id
exec "$@"
"""
_NVPMODEL = """\
#!/bin/sh
read -r mode rest < {status}
case $1$2 in
-q) expr "${{mode#pmode:}}" + 0; exit 0 ;;
{modes}
*) exit 1 ;;
esac
"""
_CLOCKS = """\
#!/bin/sh
lows="{lows}"
override={override}
read -r on < $override
case $1 in
--show) echo "EMC MinFreq=204000000 MaxFreq=2133000000 FreqOverride=$on" ;;
--store) for low in $lows; do read -r value < $low; echo "$low $value"; done > "$2" ;;
--restore)
    while read -r low value; do printf '%-24s' "$value" 1<> $low; done < "$2"
    printf 0 1<> $override
    ;;
*)
    for low in $lows; do read -r value < ${{low%min_freq}}max_freq; printf '%-24s' "$value" 1<> $low; done
    printf 1 1<> $override
    ;;
esac
"""


def _whole(value: bytes, file: Path) -> str:
    """A shell's write that takes effect at once, as the kernel's do: a file is never empty for whoever kills it."""
    return f"printf '%-24s' '{value.decode().strip()}' 1<> {file}"


class PretendedBoard:
    """The board below `folder`, with a fan, a thermal zone and the kernel's vm files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        self.found: dict[str, bytes] = {}

    @classmethod
    def laid(cls, folder: Path) -> PretendedBoard:
        """A new one, as it was shipped."""
        made = cls(folder)
        made._lay()
        made.found = made.stand()
        return made

    @classmethod
    def standing(cls, folder: Path) -> PretendedBoard:
        """One that is there."""
        made = cls(folder)
        made.found = made.stand()
        return made

    def _lay(self) -> None:
        agx_xavier(self.root)
        self._put("boot_id", f"{BOOT}\n")
        self._put("sys/class/hwmon/hwmon0/name", "pwmfan\n")
        self._put("sys/class/hwmon/hwmon0/pwm1", "62\n")
        self._put("sys/class/thermal/thermal_zone0/temp", "45000\n")
        self._put(OVERRIDE, "0\n")
        (self.root / "sys/fs").mkdir(exist_ok=True)
        for file in Path("/proc/sys/vm").iterdir():
            if os.access(file, os.R_OK) and file.stat().st_mode & 0o444:
                self._put(f"proc/sys/vm/{file.name}", file.read_text())
        self._put_commands()
        (self.folder / "study.yaml").write_text(STUDY)
        (self.folder / "study.yaml").chmod(0o600)

    def file(self, path: str) -> Path:
        """Where a file of the board lies for whoever is outside."""
        return self.root / path.lstrip("/")

    def stand(self) -> dict[str, bytes]:
        """Every byte of the board that a knob could be."""
        folders = [*(one for one in (self.root / "sys").iterdir() if one.name != "fs"), self.root / "proc/sys/vm"]
        files = [path for one in folders for path in one.rglob("*") if path.is_file() and not path.is_symlink()]
        files.append(self.file(STATUS))
        return {str(path.relative_to(self.root)): path.read_bytes() for path in sorted(files)}

    def moved(self) -> dict[str, tuple[bytes, bytes]]:
        """What is not as it was found: before and now. A kernel's file ends its line, whatever was written."""
        now = self.stand()
        both = {name: (self.found.get(name, b""), now.get(name, b"")) for name in self.found.keys() | now.keys()}
        return {name: pair for name, pair in both.items() if pair[0].rstrip() != pair[1].rstrip()}

    def lay_back(self, stand: dict[str, bytes]) -> None:
        """Every file as it was at another moment, in its place."""
        for name, content in stand.items():
            if (self.root / name).read_bytes() != content:
                (self.root / name).write_bytes(content)

    def words(self, *argv: str) -> list[str]:
        """The command line that runs `argv` on the board."""
        entered = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh", str(self.root)]
        return [*entered, *argv]

    def driver(self, *words: str, strace: Sequence[str] = ()) -> list[str]:
        """The command line of the driver on the board, with a fault put into its system calls."""
        traced = ["strace", "-f", "-b", "execve", "-qq", "-o", "/dev/null", *strace] if strace else []
        return self.words(*traced, sys.executable, str(DRIVER), str(self.folder), *words)

    def tare(
        self, *words: str, strace: Sequence[str] = (), limit_s: float = 120, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """One `tare` command, to its end."""
        return subprocess.run(
            self.driver("tare", *words, strace=strace),
            cwd=self.folder, env=self.environment(**environment),
            capture_output=True, text=True, timeout=limit_s, check=False,
        )  # fmt: skip

    def sweep(self, fault: str, last: str, every: int = 1, first: int = 1) -> dict[str, Any]:
        """Ways to die in turn, by strace's hand if the fault is a system call; what the driver found."""
        call = {"knob": "writev"}.get(fault, fault)
        kill = ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={DEATH}"] if fault != "step" else []
        words = self.driver("sweep", fault, last, str(first), str(every), strace=kill)
        ended = subprocess.run(
            words, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=900, check=False
        )
        assert ended.returncode == 0, ended.stderr
        report: dict[str, Any] = json.loads(ended.stdout)
        return report

    def begin(
        self, *words: str, output: IO[str] | None = None, before: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[str]:
        """One `tare` command that goes on, behind these words; what it prints goes into pipes, or into this file."""
        return subprocess.Popen(
            [*before, *self.driver("tare", *words)],
            cwd=self.folder, env=self.environment(**environment),
            stdout=output or subprocess.PIPE, stderr=output or subprocess.PIPE, text=True,
        )  # fmt: skip

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", **more}

    def _put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _modes(self) -> list[str]:
        """What each mode comes to, learnt once from the slower command of the other tests."""
        real, before = commands.nvpmodel(self.folder / "real", self.root), self.stand()
        after = {}
        for mode in range(4):
            subprocess.run([real, "-m", str(mode)], check=True)
            after[mode] = self.stand()
        touched = [name for name in before if any(stand[name] != before[name] for stand in after.values())]
        self.lay_back(before)
        return [
            f"-m{mode}) {'; '.join(_whole(stand[name], self.file(name)) for name in touched)} ;;"
            for mode, stand in after.items()
        ]

    def _put_commands(self) -> None:
        """What is called dozens of times a trial is a shell script, which takes a tenth of Python's time."""
        lows = [*self.root.glob("sys/devices/**/scaling_min_freq"), *self.root.glob("sys/devices/**/min_freq")]
        shell = {
            "nvpmodel": _NVPMODEL.format(status=self.file(STATUS), modes="\n".join(self._modes())),
            "jetson_clocks": _CLOCKS.format(lows=" ".join(map(str, lows)), override=self.file(OVERRIDE)),
        }
        for name, text in shell.items():
            path = self.folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
