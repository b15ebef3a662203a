"""A pretend Linux with loop devices, mounts and throttles, for the storage control; copies are made for real.

It understands just the commands that the control gives, and refuses all others. `refuse` makes commands that begin
with these words fail; `rates` is what a measured read gives, by figure.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from tare.base.host import Completed
from tare.testing import FakeHost

GROUP = "/sys/fs/cgroup/blkio/tare/t1"
V2_GROUP = "/sys/fs/cgroup/tare/t1"
LIMITS = ("read_bps", "read_iops", "write_bps", "write_iops")


@dataclass
class PretendDisks(FakeHost):
    """See the top of this file."""

    refuse: tuple[str, ...] = ()
    rates: dict[str, float] = field(default_factory=dict)
    ignores_limits: bool = False
    loops: dict[str, str] = field(default_factory=dict)  # device -> backing file
    table: list[tuple[str, str, str]] = field(default_factory=list)  # source, root, point
    measured: list[dict] = field(default_factory=list)
    loop_is_held: bool = False  # a namespace elsewhere has a copy of the mount
    let_go: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.files |= {f"{GROUP}/blkio.throttle.{name}_device": "" for name in LIMITS}
        self.files |= {f"{V2_GROUP}/io.max": "", f"{V2_GROUP}/cgroup.controllers": "cpu io memory"}
        for folder in ("loop/dio", "queue/read_ahead_kb", "dev"):
            self.files[f"/sys/block/loop7/{folder}"] = {"loop/dio": "1", "dev": "7:7"}.get(folder, "8192")
        self._show_table()

    def write(self, path: PurePath | str, text: str) -> None:
        if self.ignores_limits and ("throttle" in str(path) or "io.max" in str(path)):
            return
        if str(path).endswith("io.max"):
            text = f"{self.files[str(path)].strip()} {text}".strip()  # the kernel adds to what it has
        super().write(path, text)

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        self.asked.append(tuple(argv))
        line = " ".join(argv)
        self.log.append(f"run {line}")
        if any(line.startswith(words) for words in self.refuse):
            return Completed(tuple(argv), 1, "", "it broke")
        name = "python" if argv[0] == self.python else argv[0].replace(".", "_")
        doing = getattr(self, f"_{name}", None)
        assert doing is not None, f"{argv[0]} is not on these pretend disks"
        code, out = doing(list(argv[1:]))
        return Completed(tuple(argv), code, out, "")

    def _python(self, words: list[str]) -> tuple[int, str]:
        order = json.loads(words[-1])
        self.measured.append(order)
        figure = "bps" if order["order"] == "sequential" else "iops"
        limits = self._limit_of(("write_" if order["write"] else "read_") + figure)
        rate = self.rates.get(figure, limits)
        return 0, json.dumps({"bps": rate, "iops": rate, "requests": 100, "block": order["block"]})

    def _limit_of(self, name: str) -> float:
        words = self.files[f"{GROUP}/blkio.throttle.{name}_device"].split()
        return float(words[1]) if words else 1e9

    def _test(self, words: list[str]) -> tuple[int, str]:
        return (0 if Path(words[-1]).exists() else 1), ""

    def _mkdir(self, words: list[str]) -> tuple[int, str]:
        Path(words[-1]).mkdir(parents=True, exist_ok=True)
        return 0, ""

    def _fallocate(self, words: list[str]) -> tuple[int, str]:
        Path(words[-1]).write_bytes(b"")
        return 0, ""

    def _mkfs_ext4(self, words: list[str]) -> tuple[int, str]:
        return (0 if Path(words[-1]).exists() else 1), ""

    def _losetup(self, words: list[str]) -> tuple[int, str]:
        if words[0] == "--find":
            self.loops["/dev/loop7"] = words[-1]
            return 0, "/dev/loop7\n"
        if words[0] == "--detach":
            if self.loop_is_held:
                self.let_go.add(words[1])
            else:
                del self.loops[words[1]]
            return 0, ""
        return 0, "".join(f"{self._row(device, file)}\n" for device, file in self.loops.items())

    def _row(self, device: str, file: str) -> str:
        there = file if Path(file).exists() else f"{file} (deleted)"
        return f"{device} {int(device in self.let_go)} {there}"

    def _mount(self, words: list[str]) -> tuple[int, str]:
        if "--bind" in words:
            source, point = words[-2:]
            holder, root = self._behind(source)
            self.table.append((holder, root, point))
        elif not {"remount,bind,ro", "remount,ro"} & set(words):
            self.table.append((words[-2], "/", words[-1]))
        self._show_table()
        return 0, ""

    def _behind(self, path: str) -> tuple[str, str]:
        for source, _, point in reversed(self.table):
            if path.startswith(f"{point}/"):
                return source, path.removeprefix(point)
        return "/dev/vda", path

    def _umount(self, words: list[str]) -> tuple[int, str]:
        gone = [index for index, (_, _, point) in enumerate(self.table) if point == words[-1]]
        if not gone:
            return 32, ""
        del self.table[gone[-1]]
        self._show_table()
        return 0, ""

    def _show_table(self) -> None:
        lines = [f"99 1 7:7 {root} {point} rw - ext4 {source} rw" for source, root, point in self.table]
        cgroup = ["40 29 0:40 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio"]
        self.files["/proc/self/mountinfo"] = "\n".join(["29 1 254:0 / / rw - ext4 /dev/vda rw", *cgroup, *lines]) + "\n"

    def _cp(self, words: list[str]) -> tuple[int, str]:
        source, into = map(Path, words[-2:])
        shutil.copytree(source, into) if source.is_dir() else shutil.copy2(source, into)
        return 0, ""

    def _touch(self, words: list[str]) -> tuple[int, str]:
        Path(words[-1]).touch()
        return 0, ""

    def _mv(self, words: list[str]) -> tuple[int, str]:
        Path(words[-2]).rename(words[-1])
        return 0, ""

    def _rm(self, words: list[str]) -> tuple[int, str]:
        for path in words[words.index("--") + 1 :]:
            assert not any(point.startswith(f"{path}/") for _, _, point in self.table), f"{path} has a mount in it"
            if Path(path).is_dir():
                shutil.rmtree(path)
            else:
                Path(path).unlink(missing_ok=True)
        return 0, ""

    def _sync(self, words: list[str]) -> tuple[int, str]:
        for path in Path(words[-1]).rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        return 0, ""

    def _dd(self, words: list[str]) -> tuple[int, str]:
        Path(words[1].removeprefix("of=")).write_bytes(b"")
        return 0, ""
