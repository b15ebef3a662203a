"""Other interpreters on this machine, as pyenv keeps them: devices and images have older ones than tare's own."""

from __future__ import annotations

from pathlib import Path


def interpreters(version: str) -> list[Path]:
    """Those whose version fits the pattern, of whoever runs the tests and of root, where they may be looked at."""
    found = []
    for home in dict.fromkeys((Path.home(), Path("/root"))):
        try:
            found += sorted((home / ".pyenv" / "versions").glob(f"{version}/bin/python3"))
        except PermissionError:
            continue
    return found


def id_of(python: Path | str) -> str:
    """The version of one of these, for the id of a test: the same wherever and beside whichever others it lies."""
    parts = Path(python).parts
    return parts[-3] if "versions" in parts else "this"
