"""Bringing a root file system to where containers are made from it: an engine's store of images, or a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from tare.base.errors import StudyError
from tare.base.host import LocalHost
from tare.drivers.containers import client, engine
from tare.drivers.images.content import Content
from tare.drivers.images.tree import Report, write_folder, write_tar

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
