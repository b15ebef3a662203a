"""What a Python is made of: its program, its standard library, and the files of chosen packages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.errors import ObstacleError, StudyError

# Asked of the interpreter itself, which may be another one than ours.
_ASK = r"""
import importlib.metadata as metadata, json, re, sys, sysconfig
seen, files, missing = {}, set(), []
def add(name, wanted):
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen:
        return
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        if wanted:
            missing.append(name)
        return
    seen[key] = found.version
    files.update(str(found.locate_file(file)) for file in found.files or ())
    for line in found.requires or ():
        if "extra ==" not in line:  # one that is for another system is not installed here either
            add(re.match(r"[A-Za-z0-9._-]+", line).group(0), False)
for name in sys.argv[1:]:
    add(name, True)
base = {"base": sys.base_prefix, "installed_base": sys.base_prefix}
base.update(platbase=sys.base_prefix, installed_platbase=sys.base_prefix)
print(json.dumps({
    "executable": sys.executable, "prefix": sys.prefix, "base_prefix": sys.base_prefix,
    "version": sys.version.split()[0],
    "folders": [sysconfig.get_path(name, vars=base) for name in ("stdlib", "platstdlib")],
    "packages": seen, "files": sorted(files), "missing": missing,
}))
"""
_LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"}
)
_NOT_RUN = re.compile(r"_tkinter\.|_test\w*\.cpython|.*\.opt-[12]\.pyc$")  # what asks for a screen, for tests, for -O
_FOR_BUILDING = "config-"  # Python as a static library


@dataclass(frozen=True)
class Python:
    """One interpreter, as it describes itself."""

    executable: str
    prefix: str
    base_prefix: str
    version: str
    folders: tuple[str, ...]  # of the standard library
    packages: Mapping[str, str]  # name to version
    package_files: tuple[str, ...]

    def files(self) -> Iterator[str]:
        """Every file that it needs, the libraries of the system left out."""
        short = ".".join(self.version.split(".")[:2])
        names = ("python", "python3", f"python{short}")
        for prefix in dict.fromkeys((self.prefix, self.base_prefix)):
            yield from (f"{prefix}/bin/{name}" for name in names if Path(f"{prefix}/bin/{name}").exists())
        if self.prefix != self.base_prefix:
            yield f"{self.prefix}/pyvenv.cfg"
        yield self.executable
        for folder in dict.fromkeys(self.folders):
            yield from _below(folder)
        yield from (path for path in self.package_files if Path(path).is_file())


def ask(python: str, packages: Sequence[str]) -> Python:
    """What an interpreter says of itself and of these packages, with all that they require."""
    found = shutil.which(python)
    if found is None:
        raise StudyError(f"there is no interpreter {python!r} here.")
    done = subprocess.run([found, "-c", _ASK, *packages], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise ObstacleError(f"{python} cannot say what it is made of; Python 3.8 or newer can:\n{done.stderr[-500:]}")
    said = json.loads(done.stdout)
    if missing := said.pop("missing"):
        names = ", ".join(missing)
        raise StudyError(f"{python} has no {names}: install it there first, or leave it away from --packages.")
    files = said.pop("files")
    return Python(**{**said, "folders": tuple(said["folders"])}, package_files=tuple(files))


def _below(folder: str) -> Iterator[str]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and not name.startswith(_FOR_BUILDING))
        yield from (f"{at}/{name}" for name in sorted(files) if not _NOT_RUN.match(name))
