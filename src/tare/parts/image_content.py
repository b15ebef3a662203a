"""What belongs into an image with this device's own software: a Python with some packages, and what it stands on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.parts import elf, image_python
from tare.parts.image_tree import Entry, Tree
from tare.parts.library_closure import Loader
from tare.parts.oci import PATH

# What tare runs inside a container, and what scripts expect of any system.
_COMMANDS = (
    "sh", "cat", "chmod", "cp", "date", "dd", "echo", "env", "false", "find", "grep", "head", "id", "ln", "ls",
    "mkdir", "mv", "printf", "pwd", "readlink", "rm", "rmdir", "sed", "sleep", "sort", "stat", "sync", "tail", "test",
    "touch", "tr", "true", "uname", "wc",
)  # fmt: skip
_FOLDERS = ("/proc", "/sys", "/dev", "/run", "/root", "/home", "/var", "/opt", "/mnt", "/etc")
_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # into /usr, on most systems
_LOADED_BY_NAME = ("libgcc_s.so.1", "libnss_files.so.2")  # at run time: no file says that it needs them
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
    said = image_python.ask(python, packages)
    tree = Tree()
    for path in _FOLDERS:
        tree.add_folder(path)
    tree.add_folder("/tmp", 0o1777)
    for path in _LINKS:
        if Path(path).is_symlink():
            tree.add(path)
    for path in said.files():
        tree.add(path)
    for name in _COMMANDS:
        if (found := shutil.which(name)) is not None:
            tree.add(found)
    for path in _TAKEN_IF_THERE:
        if Path(path).is_file():
            tree.add(path)
    missing = _add_libraries(tree, said.executable)
    for path, text in _TEXTS.items():
        tree.add_text(path, text)
    # A link would hide the environment that the interpreter belongs to.
    tree.add_text("/usr/bin/python3", f'#!/bin/sh\nexec {said.executable} "$@"\n', 0o755)
    return Content(tuple(tree.entries()), said.executable, said.version, said.packages, missing)


def _add_libraries(tree: Tree, python: str) -> tuple[str, ...]:
    loader = Loader()
    files = tree.files()
    found, missing = loader.closure(path for path in files if ".so" in path or os.access(path, os.X_OK))
    if (own := elf.read(python)) is not None:
        named = (loader.find(name, (), own.kind) for name in _LOADED_BY_NAME)
        found |= {path for path in named if path is not None}
    for path in sorted(found):
        tree.add(path)
    # A library that is loaded by another of the same package is found there by whoever loads both.
    return tuple(sorted(missing - {path.rpartition("/")[2] for path in files}))
