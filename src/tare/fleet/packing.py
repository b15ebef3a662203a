"""`tare_inside`, or what an agent needs of it, as one file to be sent: the same bytes for the same content."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tare.parts.inside import SOURCE

_WHEN = (1980, 1, 1, 0, 0, 0)
_MAIN = {"__main__.py": b"from tare_inside.device_agent import main\n\nmain()\n"}

# What either kind of agent begins with on a device, before anything of ours is there: not a byte too much may be read
# from standard input, since the talk itself follows, and a copy appears under its name only when it is whole. One that
# is used is touched: those that nobody has touched for a day go (`tare_inside.device_leftovers`).
ARRIVING = """\
import os, sys
cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tare")
def kept(path):
    try:
        with open(path, "rb") as file:
            data = file.read()
        os.utime(path)
        return data
    except OSError:
        return b""
def arrived(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit(3)
        data += piece
    return data
def keep(path, data):
    os.makedirs(cache, mode=0o700, exist_ok=True)
    draft = path + "." + str(os.getpid())
    try:
        with open(draft, "wb") as file:
            file.write(data)
        os.rename(draft, path)
    except OSError:
        os.path.exists(draft) and os.remove(draft)
        raise
"""

# Reads the agent from standard input, keeps it beside the user's other caches, and becomes it.
BOOT = f"""{ARRIVING}
data, path = arrived(int(sys.argv[1])), os.path.join(cache, sys.argv[2])
if kept(path) != data:
    keep(path, data)
os.execv(sys.executable, [sys.executable, "-I", "-B", path])
"""


def whole() -> bytes:
    """All of it: what a device without tare runs on."""
    return packed(SOURCE.rglob("*.py"))


def device_agent() -> bytes:
    """The agent that looks at a device, begins trials and hands records over, as a file that Python runs."""
    return packed([SOURCE / "__init__.py", *SOURCE.glob("device_*.py")], _MAIN)


def packed(paths: Iterable[Path], others: Mapping[str, bytes] | None = None) -> bytes:
    """These files of `tare_inside`, and others with their content."""
    files = {str(Path("tare_inside") / path.relative_to(SOURCE)): path.read_bytes() for path in paths}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted({**files, **(others or {})}.items()):
            info = zipfile.ZipInfo(name, _WHEN)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()
