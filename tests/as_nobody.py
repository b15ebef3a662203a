"""Run a command as an ordinary user: `nobody`, with a home of its own, and no right that root has.

The interpreter of the tests may lie in a folder that only root may enter (/root). In a mount namespace of its own the
user sees an empty folder there, with the interpreter's folders in it and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

UID = 65534
_SCRIPT = """
set -e
hidden=$1; shift
if [ -n "$hidden" ]; then
  saved=$(mktemp -d); mount --bind "$hidden" "$saved"; mount -t tmpfs -o mode=755 tare-test "$hidden"
  while [ "$1" != -- ]; do
    mkdir -p "$1"; mount --bind "$saved${1#"$hidden"}" "$1"; shift
  done
  umount -l "$saved"; rmdir "$saved"
fi
while [ "$1" != -- ]; do shift; done
shift
exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs "$@"
"""


def _hidden() -> Path | None:
    """The outermost folder above the interpreter that others may not enter."""
    above = [each for path in (sys.executable, sys.base_prefix, sys.prefix) for each in Path(path).resolve().parents]
    closed = [folder for folder in above if not folder.stat().st_mode & 0o001]
    return min(closed, key=lambda folder: len(folder.parts), default=None)


def command(argv: Sequence[str], *, new_privileges: bool = False) -> list[str]:
    """What runs `argv` as that user; `new_privileges` for programs like newuidmap that have rights of their own."""
    hidden = _hidden()
    shown = {str(Path(path).resolve()) for path in (sys.base_prefix, sys.prefix)}
    inside = sorted(path for path in shown if hidden is not None and Path(path).is_relative_to(hidden))
    script = _SCRIPT.replace(" --no-new-privs", "") if new_privileges else _SCRIPT
    alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "nobody"]
    return [*alone, str(hidden or ""), *inside, "--", *argv]


def run(
    argv: Sequence[str], home: Path, *, env: Mapping[str, str] | None = None, new_privileges: bool = False,
    limit_s: float = 300,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run it in `home`, which becomes that user's, with a runtime folder and no state of tare's from elsewhere."""
    runtime = home / "run"
    runtime.mkdir(exist_ok=True, mode=0o700)
    for folder in (home, runtime):
        os.chown(folder, UID, UID)
    left_out = ("TARE_STATE", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DOCKER_HOST", "USER", "LOGNAME")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    there = {**kept, "HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), **(env or {})}
    return subprocess.run(
        command(argv, new_privileges=new_privileges), cwd=home, env=there, capture_output=True, text=True,
        timeout=limit_s, check=False,
    )  # fmt: skip
