"""What a container of somebody's own line may be given, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tare.drivers.containers.own import Mount


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_volume_has_a_size_only_where_all_of_it_was_read(
    is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(5000))
    (tmp_path / "bin").mkdir()
    # du's own answer to a folder that it may not read, which root cannot be refused.
    (tmp_path / "bin" / "du").write_text(f'#!/bin/sh\n/usr/bin/du "$@"\nexit {0 if is_whole else 1}\n')
    (tmp_path / "bin" / "du").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    size = Mount(str(tmp_path), "/data", writable=True).size

    assert (size is not None and size > 5000) if is_whole else size is None
