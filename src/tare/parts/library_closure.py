"""Every shared library that some files need, and that those need in turn, as this device's loader would find them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from tare.parts import elf
from tare.parts.elf import Elf

_CACHED = re.compile(r"^\s*(\S+) \(.*\) => (/\S.*)$", re.MULTILINE)
_DEFAULT = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")


class Loader:
    """The loader's rules: a library's own search path, then the cache of the system, then the usual folders."""

    def __init__(self, cached: Iterable[tuple[str, str]] | None = None) -> None:
        self._cached: dict[str, list[str]] = {}
        for name, path in _cache() if cached is None else cached:
            self._cached.setdefault(name, []).append(path)
        self._read: dict[str, Elf | None] = {}

    def closure(self, files: Iterable[str]) -> tuple[set[str], set[str]]:
        """The paths of all libraries and loaders that these files need, and the names that nothing here has."""
        found: set[str] = set()
        missing: set[str] = set()
        inherited: tuple[str, ...] = ()
        waiting = [(path, inherited) for path in files]
        seen: set[str] = set()
        while waiting:
            path, above = waiting.pop()
            known = self._elf(path)
            if known is None or path in seen:
                continue
            seen.add(path)
            # An RPATH also holds for what the library itself loads.
            folders = (*_folders(known, path), *above)
            found |= {known.interpreter} if known.interpreter else set()
            for name in known.needed:
                if (place := self.find(name, folders, known.kind)) is None:
                    missing.add(name)
                else:
                    found.add(place)
                    waiting.append((place, folders))
        return found, missing

    def find(self, name: str, folders: Iterable[str], kind: tuple[int, int]) -> str | None:
        """Where the library of this name lies; one for another kind of processor is passed over."""
        if "/" in name:
            return name if self._fits(name, kind) else None
        listed = [f"{folder}/{name}" for folder in folders]
        usual = [f"{folder}/{name}" for folder in _DEFAULT]
        return next((path for path in (*listed, *self._cached.get(name, ()), *usual) if self._fits(path, kind)), None)

    def _fits(self, path: str, kind: tuple[int, int]) -> bool:
        known = self._elf(path) if Path(path).is_file() else None
        return known is not None and known.kind == kind

    def _elf(self, path: str) -> Elf | None:
        if path not in self._read:
            self._read[path] = elf.read(path)
        return self._read[path]


def _folders(known: Elf, path: str) -> Iterator[str]:
    origin = str(Path(path).resolve().parent)
    for folder in known.search:
        yield folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)


def _cache() -> list[tuple[str, str]]:
    """Names and paths in the system's cache of libraries; none where the C library keeps no such cache."""
    program = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if program is None:
        return []
    said = subprocess.run([program, "-p"], capture_output=True, text=True, timeout=60, check=False).stdout
    return _CACHED.findall(said)
