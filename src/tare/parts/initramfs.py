"""What a guest boots into: a few files in memory that load modules, mount the root and start the agent there."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import tare_inside
from tare.errors import ObstacleError
from tare.host import Host
from tare.parts.kernels import Kernel, closure

AGENT = "/run/tare/agent"  # a folder that Python runs
_MODULES = ("__init__", "guest_agent", "guest_files", "guest_frames", "guest_jobs", "guest_start", "guest_streams")
_MAIN = "from tare_inside.guest_agent import main\n\nmain()\n"
_COMPILE = """import py_compile, sys
for name in sys.argv[3:]:
    file = "/" + name + ".py"
    py_compile.compile(sys.argv[1] + file, sys.argv[2] + file + "c", dfile="tare_inside" + file, doraise=True)
"""

# The kernel's words say what the root is. Its writable places are in the guest's memory; of the device nothing can
# be changed. What the trial reads beside the root comes as numbered folders of the same share.
_INIT = """#!/bin/busybox sh
b=/bin/busybox
say() { $b echo "tare-init: $*" > /dev/console; }
$b mount -t devtmpfs dev /dev; $b mount -t proc proc /proc; $b mount -t sysfs sys /sys
for word in $($b cat /proc/cmdline); do case $word in tare.*=*) export "tare_${word#tare.}";; esac; done
while read -r module; do $b insmod "/modules/$module" || say "cannot load $module"; done < /modules/order
tries=0
until $b mount -t "$tare_fs" -o "$tare_options" "$tare_source" /host; do
  tries=$((tries + 1)); [ $tries -lt 20 ] || { say "cannot mount $tare_source as $tare_fs"; break; }; $b sleep 0.1
done
lower=/host/$tare_below; rw=/rw
$b mount -t tmpfs rw $rw; $b mkdir $rw/upper $rw/work
$b mount -t overlay -o "lowerdir=$lower,upperdir=$rw/upper,workdir=$rw/work" overlay /new || {
  say "no overlay: the root is read-only"; $b mount -o bind "$lower" /new; }
$b mount -o move /dev /new/dev; $b mount -o move /proc /new/proc; $b mount -o move /sys /new/sys
$b mkdir -p /new/dev/shm /new/dev/pts /new/dev/mqueue
$b mount -t tmpfs -o mode=1777,nosuid,nodev shm /new/dev/shm
$b mount -t devpts -o mode=620,ptmxmode=666 devpts /new/dev/pts
$b mount -t mqueue mqueue /new/dev/mqueue
$b mount -t tmpfs -o mode=1777,nosuid,nodev tmp /new/tmp
$b mount -t tmpfs -o mode=755,nosuid,nodev run /new/run
$b mount -t cgroup2 cgroup2 /new/sys/fs/cgroup
while read -r number path; do
  if [ -d "/host/$number" ]; then $b mkdir -p "/new$path"; else $b mkdir -p "/new${path%/*}"; : >> "/new$path"; fi
  $b mount -o bind "/host/$number" "/new$path" || say "cannot show $path"
done < /binds
$b mkdir -p /new/run/tare; $b cp -r /agent /new""" + AGENT + """
exec $b switch_root /new "$($b cat /python)" -I -S -B """ + AGENT + """
"""  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of the archive."""

    name: str
    mode: int
    content: bytes = b""


def contents(host: Host, kernel: Kernel, modules: Sequence[str], shown: Sequence[str]) -> list[Entry]:
    """Everything a guest boots into; `shown` are the paths of the share's numbered folders, in their order."""
    loaded = closure(kernel, modules)
    listed = "".join(f"{number} {path}\n" for number, path in enumerate(shown))
    folders = ("bin", "dev", "proc", "sys", "host", "rw", "new", "modules", "agent", "agent/tare_inside")
    return [
        *(Entry(name, stat.S_IFDIR | 0o755) for name in folders),
        Entry("init", stat.S_IFREG | 0o755, _INIT.encode()),
        *_agent(host),
        Entry("python", stat.S_IFREG | 0o644, host.python.encode()),
        Entry("binds", stat.S_IFREG | 0o644, listed.encode()),
        Entry("modules/order", stat.S_IFREG | 0o644, "".join(f"{name}\n" for name, _ in loaded).encode()),
        *(Entry(f"modules/{name}", stat.S_IFREG | 0o644, content) for name, content in loaded),
        *_busybox(host),
    ]


def _agent(host: Host) -> list[Entry]:
    """The agent as byte code of the interpreter that will run it: an emulated one would compile for seconds."""
    source = Path(tare_inside.__file__).parent
    with TemporaryDirectory() as folder:
        host.run([host.python, "-I", "-S", "-c", _COMPILE, str(source), folder, *_MODULES]).checked()
        code = [Path(folder, f"{name}.pyc") for name in _MODULES]
        modules = [Entry(f"agent/tare_inside/{path.name}", stat.S_IFREG | 0o644, path.read_bytes()) for path in code]
    return [Entry("agent/__main__.py", stat.S_IFREG | 0o644, _MAIN.encode()), *modules]


def _busybox(host: Host) -> list[Entry]:
    """busybox, and the libraries of one that is not static."""
    at = host.run(["sh", "-c", "command -v busybox"]).out.strip()
    if not at:
        raise ObstacleError("there is no busybox here: `apt-get install busybox-static` brings it.")
    libraries = [word for word in host.run(["ldd", at]).out.split() if word.startswith("/")]
    folders = dict.fromkeys(str(parent).lstrip("/") for path in libraries for parent in reversed(Path(path).parents))
    return [
        Entry("bin/busybox", stat.S_IFREG | 0o755, Path(at).read_bytes()),
        *(Entry(folder, stat.S_IFDIR | 0o755) for folder in folders if folder),
        *(Entry(path.lstrip("/"), stat.S_IFREG | 0o755, Path(path).read_bytes()) for path in libraries),
    ]


def archive(entries: Iterable[Entry]) -> bytes:
    """The entries in the format that the kernel unpacks (cpio, `newc`)."""
    parts = [_member(number, entry) for number, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], 1)]
    return b"".join(parts)


def _member(number: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    links, no_owner, no_time, no_device = 1, (0, 0), 0, (0, 0, 0, 0)
    fields = (number, entry.mode, *no_owner, links, no_time, len(entry.content), *no_device, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(head) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
