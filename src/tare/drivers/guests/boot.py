"""What a guest boots into: a few files in memory that load modules, mount the root and start the agent there.

The device's root as a guest sees it: a read-only share of `/`, with what the trial reads beside it.

The share is put together in a mount namespace of its own, by the very process that serves it: the device's mount
table never shows it, and when that process dies, so do the mounts.
"""

from __future__ import annotations

import gzip
import lzma
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import tare_inside
from tare.base.errors import ObstacleError
from tare.base.files import ROOT_STATE, state_dir
from tare.base.host import Host, Site
from tare.drivers.containers import roots

_NAME = re.compile(r"vmlinu[xz]-(?P<release>.+)")
_MODULE = re.compile(r"(?P<name>.+)\.ko(?P<packed>\.\w+)?")
_UNPACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.decompress, ".xz": lzma.decompress}
HOW_TO_GET_ONE = "`tools/guest-kernel` fetches one by apt and leaves the boot loader alone; or name one with `kernel:`"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel image, and the folder of its modules where there is one."""

    image: Path
    release: str
    modules: Path | None = None

    def offers(self, module: str) -> bool:
        """Whether this feature is built in or a module; without a module folder everything is taken to be built in."""
        return self.modules is None or module in built_in(self.modules) or module in _files(self.modules)


def found() -> list[Kernel]:
    """The kernels on this device, the best for a guest first: those that tare fetched, cloud kernels, the newest."""
    homes = dict.fromkeys([ROOT_STATE / "kernels", state_dir() / "kernels"])
    images = [path for home in homes for path in home.glob("*/boot/vmlinu[xz]-*")]
    images += Path("/boot").glob("vmlinu[xz]-*")
    kernels = [named(path) for path in images if path.is_file()]
    return sorted(kernels, key=lambda kernel: ("cloud" in kernel.release, _version(kernel.release)), reverse=True)


def named(path: Path) -> Kernel:
    """The kernel at this path; `boot/vmlinuz-RELEASE` has its modules in `lib/modules/RELEASE` beside `boot`."""
    match = _NAME.fullmatch(path.name)
    release = match["release"] if match else path.name
    for base in (path.parent.parent, Path("/"), Path("/usr")):
        folder = base / "lib/modules" / release
        if match and folder.is_dir():
            return Kernel(path, release, folder)
    return Kernel(path, release)


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))


def built_in(folder: Path) -> frozenset[str]:
    """The modules that are part of the image itself."""
    try:
        lines = (folder / "modules.builtin").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(_plain(Path(line).name) for line in lines)


def closure(kernel: Kernel, wanted: Iterable[str]) -> list[tuple[str, bytes]]:
    """The wanted modules and all that they need, in the order of loading; what is built in or missing is left out."""
    if kernel.modules is None:
        return []
    files, loaded = _files(kernel.modules), dict[str, bytes]()

    def load(name: str) -> None:
        if name in loaded or name not in files:
            return
        content = _content(files[name])
        for needed in _needs(content):
            load(needed)
        loaded[name] = content

    for name in wanted:
        load(name)
    return list(loaded.items())


def _files(folder: Path) -> dict[str, Path]:
    """The kernel's own modules, and those that were built for it (dkms)."""
    places = (folder / name for name in ("kernel", "extra", "updates"))
    return {_plain(path.name): path for place in places for path in place.rglob("*.ko*")}


def _plain(file: str) -> str:
    """`virtio-pci.ko.xz` is the module virtio_pci."""
    match = _MODULE.fullmatch(file)
    return (match["name"] if match else file).replace("-", "_")


def _content(path: Path) -> bytes:
    match = _MODULE.fullmatch(path.name)
    packed = (match["packed"] if match else None) or ""
    if packed not in _UNPACK:
        raise ObstacleError(
            f"{path} is packed as {packed}, which Python cannot read; take another kernel: {HOW_TO_GET_ONE}."
        )
    return _UNPACK[packed](path.read_bytes())


def _needs(module: bytes) -> list[str]:
    """The names after `depends=` in a module's own description."""
    match = re.search(rb"\0depends=([^\0]*)\0", module)
    return [name.replace("-", "_") for name in match[1].decode().split(",") if name] if match else []


AGENT = "/run/tare/agent"  # a folder that Python runs
_MODULES = ("__init__", "agents/__init__", "agents/guest", "agents/guest_jobs")
_MAIN = "from tare_inside.agents.guest import main\n\nmain()\n"
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
    folders = (
        "bin",
        "dev",
        "proc",
        "sys",
        "host",
        "rw",
        "new",
        "modules",
        "agent",
        "agent/tare_inside",
        "agent/tare_inside/agents",
    )
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
        code = {f"{name}.pyc": Path(folder, f"{name}.pyc").read_bytes() for name in _MODULES}
        modules = [Entry(f"agent/tare_inside/{name}", stat.S_IFREG | 0o644, content) for name, content in code.items()]
    return [Entry("agent/__main__.py", stat.S_IFREG | 0o644, _MAIN.encode()), *modules]


def _busybox(host: Host) -> list[Entry]:
    """busybox, and the libraries of one that is not static."""
    at = host.run(["sh", "-c", "command -v busybox"]).out.strip()
    if not at:
        raise ObstacleError("busybox is not installed: run `apt-get install busybox-static`.")
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


_VIRTIOFSD = ("virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/virtiofsd")
_OPEN_FILES = 20_000  # its own default is refused where root lacks CAP_SYS_RESOURCE

# Arguments, not text: the folder, each path to show, `--`, then the command that takes the shell's place.
_EXPORT = """into=$1; shift
show() { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" || exit 125; }
mkdir -p "$into/root" && show / "$into/root" || exit 125
n=0
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$into/$n"; else : >> "$into/$n"; fi
  show "$1" "$into/$n"; n=$((n + 1)); shift
done
shift; exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Export:
    """A share that is still to be made: where, and what it shows beside `/`."""

    folder: Path
    shown: tuple[str, ...]

    def around(self, command: Sequence[str]) -> tuple[str, ...]:
        """`command`, started where the share can be seen."""
        private = ("unshare", "--mount", "--propagation", "private")
        return (*private, "sh", "-c", _EXPORT, "tare-export", str(self.folder), *self.shown, "--", *command)


def export(host: Host, site: Site, folder: Path) -> Export:
    """The share for a site: `/` itself, and whatever of its needs a share of `/` alone would not show."""
    beside = [bind.source for bind in roots.binds(host, site) if not bind.writable]
    return Export(folder, tuple(beside))


def virtiofsd(host: Host) -> str | None:
    """Where the program is that serves a folder to a guest."""
    return next((path for path in _VIRTIOFSD if host.run([path, "--version"]).code == 0), None)


def virtiofsd_command(host: Host, program: str, socket: Path, folder: Path) -> tuple[str, ...]:
    """The command of either program of this name: the one that came with QEMU until 7, and the one in Rust."""
    limit = f"--rlimit-nofile={_OPEN_FILES}"
    if "--shared-dir" in host.run([program, "--help"]).out:
        newer = (f"--shared-dir={folder}", "--cache=always", "--sandbox=chroot")
        return (program, f"--socket-path={socket}", *newer, limit)
    older = ("-o", f"source={folder}", "-o", "cache=always", "-o", "sandbox=chroot", "--thread-pool-size=2")
    return (program, f"--socket-path={socket}", *older, limit)


def way(host: Host, kernel: Kernel) -> str | None:
    """How this kernel can see a share of ours: virtiofs, else 9p; None if it knows neither."""
    if kernel.offers("virtiofs") and virtiofsd(host) is not None:
        return "virtiofs"
    return "9p" if kernel.offers("9p") and kernel.offers("9pnet_virtio") else None
