"""A root file system in the making: which file of the device goes where, with the links that lead there.

What belongs into an image with this device's own software: a Python with some packages, and what it stands on.

Bringing a root file system to where containers are made from it: an engine's store of images, or a folder.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeAlias

from tare.base.errors import ObstacleError, StudyError, TareError
from tare.base.host import LocalHost
from tare.drivers.containers import client, engine
from tare.drivers.places import PATH


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, link or folder of the image. `source` is a file of the device; else `text` is what the file holds."""

    path: str
    mode: int
    source: str = ""
    link: str = ""
    text: str = ""
    is_folder: bool = False
    size_bytes: int = 0
    mtime_s: int = 0


class Tree:
    """Files by their path in the image, which is their real path on the device: each is there once."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._real: dict[str, str] = {}

    def add(self, path: str) -> str:
        """Take a file of the device, or a link and what it leads to; returns where it lies."""
        at = self._real_path(path)
        if at in self._entries:
            return at
        seen = Path(at).lstat()
        if stat.S_ISLNK(seen.st_mode):
            link = str(Path(at).readlink())
            self._entries[at] = Entry(at, 0o777, link=link)
            return self.add(posixpath.join(posixpath.dirname(at), link)) if Path(at).exists() else at
        if stat.S_ISDIR(seen.st_mode):
            self.add_folder(at)
        elif stat.S_ISREG(seen.st_mode):
            # Byte code holds the time of its source: with another time it would be compiled at every start.
            mtime_s = int(seen.st_mtime) if at.endswith(".py") else 0
            mode = stat.S_IMODE(seen.st_mode) & 0o755 | 0o444
            self._entries[at] = Entry(at, mode, source=at, size_bytes=seen.st_size, mtime_s=mtime_s)
        return at

    def add_text(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file with this text, unless one of the device is there already."""
        at = self._real_path(path)
        self._entries.setdefault(at, Entry(at, mode, text=text, size_bytes=len(text.encode())))

    def add_command(self, path: str, text: str, mode: int) -> None:
        """A script in place of a link of the device: other links that led there lead to what was behind it.

        Where a file of the device is there already, it stays.
        """
        at = self._real_path(path)
        if (before := self._entries.get(at)) is not None and not before.link:
            return
        if before is not None:
            behind = str(Path(at).resolve())
            for name, entry in list(self._entries.items()):
                if entry.link and self._real_path(posixpath.join(posixpath.dirname(name), entry.link)) == at:
                    self._entries[name] = replace(entry, link=behind)
        self._entries[at] = Entry(at, mode, text=text, size_bytes=len(text.encode()))

    def add_folder(self, path: str, mode: int = 0o755) -> None:
        self._entries.setdefault(path, Entry(path, mode, is_folder=True))

    def files(self) -> list[str]:
        """The files of the device that are in it."""
        return [entry.source for entry in self._entries.values() if entry.source]

    def entries(self) -> list[Entry]:
        """Everything, sorted, a folder before what is in it."""
        missing = {parent for path in self._entries for parent in _parents(path)} - self._entries.keys()
        folders = [Entry(path, 0o755, is_folder=True) for path in missing]
        return sorted([*self._entries.values(), *folders], key=lambda entry: entry.path.split("/"))

    def _real_path(self, path: str) -> str:
        """Where a file or a link lies; a link is not followed."""
        return posixpath.join(self._real_folder(posixpath.dirname(path)), posixpath.basename(path))

    def _real_folder(self, folder: str) -> str:
        """Where a folder really lies; the links on the way (`/lib -> usr/lib`) are taken too."""
        if folder not in self._real:
            self._real[folder] = self._walked(folder)
        return self._real[folder]

    def _walked(self, folder: str) -> str:
        at = "/"
        for part in PurePosixPath(folder).parts[1:]:
            step = posixpath.normpath(posixpath.join(at, part))
            if Path(step).is_symlink():
                link = str(Path(step).readlink())
                self._entries.setdefault(step, Entry(step, 0o777, link=link))
                step = self._real_folder(posixpath.join(at, link))
            at = step
        return at


def _parents(path: str) -> Iterator[str]:
    while (path := path.rpartition("/")[0]) != "":
        yield path


Report: TypeAlias = Callable[[int], None]  # so many more bytes are done


def write_tar(entries: Iterable[Entry], into: BinaryIO, report: Report) -> None:
    """Everything belongs to root and has a fixed time, so that two builds are equal."""
    with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            if entry.source:
                with Path(entry.source).open("rb") as file:
                    tar.addfile(_header(entry), file)
            else:
                tar.addfile(_header(entry), io.BytesIO(entry.text.encode()))
            report(entry.size_bytes)


def _header(entry: Entry) -> tarfile.TarInfo:
    header = tarfile.TarInfo(entry.path.lstrip("/"))
    header.mode, header.mtime, header.linkname = entry.mode, entry.mtime_s, entry.link
    header.type = tarfile.SYMTYPE if entry.link else tarfile.DIRTYPE if entry.is_folder else tarfile.REGTYPE
    header.size = entry.size_bytes if header.type == tarfile.REGTYPE else 0
    return header


def write_folder(entries: Iterable[Entry], root: Path, report: Report) -> None:
    """The same as a folder, for platforms without an engine."""
    for entry in entries:
        target = root / entry.path.lstrip("/")
        if entry.is_folder:
            target.mkdir(exist_ok=True)
        elif entry.link:
            target.symlink_to(entry.link)
            continue
        elif entry.source:
            shutil.copyfile(entry.source, target)
        else:
            target.write_text(entry.text)
        target.chmod(entry.mode)
        if not entry.is_folder:
            os.utime(target, (entry.mtime_s, entry.mtime_s))
        report(entry.size_bytes)


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
        raise StudyError(f"no interpreter {python!r} here.")
    done = subprocess.run([found, "-c", _ASK, *packages], capture_output=True, text=True, timeout=120, check=False)
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


# What tare runs inside a container, and what scripts expect of any system.
_COMMANDS = (
    "sh", "cat", "chmod", "cp", "date", "dd", "echo", "env", "false", "find", "grep", "head", "id", "ln", "ls",
    "mkdir", "mv", "printf", "pwd", "readlink", "rm", "rmdir", "sed", "sleep", "sort", "stat", "sync", "tail", "test",
    "touch", "tr", "true", "uname", "wc",
)  # fmt: skip
_FOLDERS = ("/proc", "/sys", "/dev", "/run", "/root", "/home", "/var", "/opt", "/mnt", "/etc")
_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # into /usr, on most systems
_LOADED_BY_NAME = ("libgcc_s.so.1", "libnss_files.so.2")  # at run time: no file says that it needs them
_FOUND = re.compile(r"^\t(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_MISSING = re.compile(r"^\t(\S+) => not found$", re.MULTILINE)
_FILES_AT_ONCE = 500
_TAKEN_IF_THERE = ("/bin/sh", "/etc/ld.so.cache")
_TEXTS = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n",
    "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


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
        if (found := shutil.which(name)) is not None:
            tree.add(found)
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
    return set(_FOUND.findall(reported)), set(_MISSING.findall(reported))


def _add_libraries(tree: Tree) -> tuple[str, ...]:
    files = tree.files()
    found, missing = libraries([path for path in files if ".so" in path or os.access(path, os.X_OK)])
    for folder in {Path(path).parent for path in found if Path(path).name.startswith("libc.so")}:
        found |= {str(folder / name) for name in _LOADED_BY_NAME if (folder / name).is_file()}
    for path in sorted(found):
        tree.add(path)
    # A library that is loaded by another of the same package is found there by whoever loads both.
    return tuple(sorted(missing - {path.rpartition("/")[2] for path in files}))


_IMPORT_WITHIN_S = 600
Taker: TypeAlias = Callable[[Content, str, Report], str]  # returns what a study names it by


def into_docker(content: Content, name: str, report: Report) -> str:
    """An image of the Docker engine that answers."""
    return _imported(engine.connect(LocalHost()), content, name, report)


def into_podman(content: Content, name: str, report: Report) -> str:
    """An image of Podman, as root has them."""
    return _imported(client.podman(LocalHost()), content, name, report)


def _imported(taker: client.Client, content: Content, name: str, report: Report) -> str:
    image = ":".join(_tagged(name))
    with _archive(content, report) as file:
        taker.import_archive(file, image, _changes(content), _IMPORT_WITHIN_S)
    return image


def into_folder(content: Content, name: str, report: Report) -> str:
    """An unpacked root file system, for runc and gVisor; whole or not at all."""
    target = Path(name).absolute()
    if target.exists():
        raise StudyError(f"{target} is there already; name another folder, or remove it.")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        write_folder(content.entries, draft, report)
        draft.chmod(0o755)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return str(target)


TAKERS: Mapping[str, Taker] = {"docker": into_docker, "podman": into_podman, "folder": into_folder}


def _tagged(name: str) -> tuple[str, str]:
    """`tare/same` is `tare/same:latest`; a colon before a slash is a registry's port."""
    before, colon, tag = name.rpartition(":")
    return (before, tag) if colon and "/" not in tag else (name, "latest")


def _changes(content: Content) -> list[str]:
    packages = ",".join(f"{name}={version}" for name, version in sorted(content.packages.items()))
    return [f"ENV PATH={content.path}", f'LABEL tare.image="python={content.version},{packages}"']


@contextmanager
def _archive(content: Content, report: Report) -> Iterator[Path]:
    """The archive in a file that goes away: an engine reads it as fast as it can."""
    descriptor, name = tempfile.mkstemp(prefix="tare-image-", suffix=".tar")
    try:
        with os.fdopen(descriptor, "wb") as file:
            write_tar(content.entries, file, report)
        yield Path(name)
    finally:
        Path(name).unlink()
