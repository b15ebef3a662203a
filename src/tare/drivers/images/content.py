"""What belongs into an image with this device's own software: a Python with some packages, and what it stands on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.base.errors import ObstacleError, StudyError, TareError
from tare.drivers.images.tree import Entry, Tree
from tare.drivers.places import PATH

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

# What tare runs inside a container, and what scripts expect of any system.
_COMMANDS = (
    "sh", "cat", "chmod", "cp", "date", "dd", "echo", "env", "false", "find", "grep", "head", "id", "ln", "ls",
    "mkdir", "mv", "printf", "pwd", "readlink", "rm", "rmdir", "sed", "sleep", "sort", "stat", "sync", "tail", "test",
    "touch", "tr", "true", "uname", "wc",
)  # fmt: skip
_FOLDERS = ("/proc", "/sys", "/dev", "/run", "/root", "/home", "/var", "/opt", "/mnt", "/etc")
_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # into /usr, on most systems
_LOADED_BY_NAME = ("libgcc_s.so.1", "libnss_files.so.2")  # at run time: no file says that it needs them
_LIBRARY = re.compile(r"^\t(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_MISSING = re.compile(r"^\t(\S+) => not found$", re.MULTILINE)
_FILES_AT_ONCE = 500
_TAKEN_IF_THERE = ("/bin/sh", "/etc/ld.so.cache")
_TEXTS = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n",
    "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


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
    program = shutil.which(python)
    if program is None:
        raise StudyError(f"no interpreter {python!r} here.")
    done = subprocess.run([program, "-c", _ASK, *packages], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise ObstacleError(f"{python} cannot say what it is made of; Python 3.8 or newer can:\n{done.stderr[-500:]}")
    reported = json.loads(done.stdout)
    if missing := reported.pop("missing"):
        names = ", ".join(missing)
        raise StudyError(f"{python} has no {names}: install it there first, or leave it away from --packages.")
    files = reported.pop("files")
    return Python(**{**reported, "folders": tuple(reported["folders"])}, package_files=tuple(files))


def _below(folder: str) -> Iterator[str]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and not name.startswith(_FOR_BUILDING))
        yield from (f"{at}/{name}" for name in sorted(files) if not _NOT_RUN.match(name))


@dataclass(frozen=True)
class Content:
    """Everything that goes into an image, and what to say about it."""

    entries: tuple[Entry, ...]
    python: str
    version: str
    packages: Mapping[str, str]  # name to version
    missing: tuple[str, ...]  # libraries that some file names and nothing here has

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.entries)

    @property
    def path(self) -> str:
        """The PATH inside: the interpreter's own folder first."""
        return f"{Path(self.python).parent}:{PATH}"


def gather(python: str, packages: Sequence[str]) -> Content:
    """The interpreter, its standard library, the packages with what they require, and every library below them."""
    reported = ask(python, packages)
    tree = Tree()
    for path in _FOLDERS:
        tree.add_folder(path)
    tree.add_folder("/tmp", 0o1777)
    for path in _LINKS:
        if Path(path).is_symlink():
            tree.add(path)
    for path in reported.files():
        tree.add(path)
    for name in _COMMANDS:
        if (command := shutil.which(name)) is not None:
            tree.add(command)
    for path in _TAKEN_IF_THERE:
        if Path(path).is_file():
            tree.add(path)
    missing = _add_libraries(tree)
    for path, text in _TEXTS.items():
        tree.add_text(path, text)
    # A link would hide the environment that the interpreter belongs to; so would the system's own, which it may be of.
    add = tree.add_command if reported.prefix != reported.base_prefix else tree.add_text
    add("/usr/bin/python3", f'#!/bin/sh\nexec {reported.executable} "$@"\n', 0o755)
    return Content(tuple(tree.entries()), reported.executable, reported.version, reported.packages, missing)


def libraries(files: Sequence[str]) -> tuple[set[str], set[str]]:
    """The paths of all libraries and loaders that these files need, and the names that nothing here has.

    The loader itself is asked: `ldd` knows every rule (RPATH, RUNPATH, cache, processor), and passes over scripts.
    """
    if (program := shutil.which("ldd")) is None:
        raise TareError("`ldd` is needed to find the libraries of an image: install the tools of the C library.")
    reported = ""
    for first in range(0, len(files), _FILES_AT_ONCE):
        argv = [program, *files[first : first + _FILES_AT_ONCE]]
        env = {"PATH": PATH, "LC_ALL": "C"}
        reported += subprocess.run(argv, capture_output=True, text=True, errors="replace", env=env, check=False).stdout
    return set(_LIBRARY.findall(reported)), set(_MISSING.findall(reported))


def _add_libraries(tree: Tree) -> tuple[str, ...]:
    files = tree.files()
    needed, missing = libraries([path for path in files if ".so" in path or os.access(path, os.X_OK)])
    for folder in {Path(path).parent for path in needed if Path(path).name.startswith("libc.so")}:
        needed |= {str(folder / name) for name in _LOADED_BY_NAME if (folder / name).is_file()}
    for path in sorted(needed):
        tree.add(path)
    # A library that is loaded by another of the same package is found there by whoever loads both.
    return tuple(sorted(missing - {path.rpartition("/")[2] for path in files}))
