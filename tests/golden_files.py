"""Texts that are kept in files: a test compares, a person looks at the difference and accepts it.

`TARE_ACCEPT_GOLDEN=1 pytest tests/unit/report` writes what is there now; read the diff before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def assert_as_in_file(text: str, name: str) -> None:
    """`text` is what `tests/golden/<name>` holds."""
    path = FOLDER / name
    if os.environ.get("TARE_ACCEPT_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    assert f"{text}\n" == path.read_text(encoding="utf-8"), f"{path} differs; TARE_ACCEPT_GOLDEN=1 accepts the new text"
