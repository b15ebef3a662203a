"""Kernels for virtual machines: found on this device, with the modules that a guest needs to see its root."""

from __future__ import annotations

import gzip
import lzma
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tare.errors import ObstacleError
from tare.parts.state import ROOT_STATE, state_dir

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
    return {_plain(path.name): path for path in (folder / "kernel").rglob("*.ko*")}


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
