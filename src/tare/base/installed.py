"""How tare was installed here: how to get what an extra needs, and whether another project's `tare` is in the way.

The name is free on no package index: `tare` on PyPI is another project. So no message names tare to an installer.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

NAME = "tare-bench"
_OTHER = "tare"  # what the other project is called on PyPI; it has the same top-level package
_SOURCES = Path(__file__).parents[3]
_EXTRA = re.compile(r"""\s*;.*\bextra\s*==\s*["']([^"']+)["']""")


def pip_install(extra: str) -> str:
    """The command that brings an extra: its libraries by name; of sources without an installation, the folder's."""
    from importlib import metadata  # 20 ms, for a message

    try:
        wanted = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:  # run from its sources, by PYTHONPATH
        wanted = []
    named = [(each[: found.start()], found[1]) for each in wanted if (found := _EXTRA.search(each))]
    libraries = [library for library, of in named if of == extra] or [f"{_SOURCES}[{extra}]"]
    return f"pip install {shlex.join(libraries)}"


def other_tares() -> list[str]:
    """A sentence on each `tare` of another project: installed over this one, or found first on the path."""
    from importlib import metadata

    told = []
    try:
        other = metadata.distribution(_OTHER)
    except metadata.PackageNotFoundError:
        pass
    else:
        told.append(
            f"the package {_OTHER} {other.version} of another project is installed in {sys.prefix}, with files in the "
            f"same folder: `pip uninstall {_OTHER}`, then install this one again from its clone or wheel."
        )
    if (script := shutil.which("tare")) is not None and not _is_ours(Path(script)):
        told.append(
            f"`tare` in this shell is {script}, a program of another project: `{shlex.quote(sys.executable)} -m tare` "
            "runs this one; or put its folder first on PATH."
        )
    return told


def _is_ours(script: Path) -> bool:
    """Whether it imports our command line: the launchers of pip and of uv are texts, or end in one."""
    try:
        return b"tare.cli" in script.read_bytes()
    except OSError:
        return True  # not to be read, so nothing is known
