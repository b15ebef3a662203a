"""Files that a container opens are listed from outside, for programs of a few milliseconds."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tare.drivers.cgroups.tree import NAME_VARIABLE
from tare.drivers.opened import Opened

SCRIPT = "exec env TARE_NAME=it sh -c \"sleep 1; cat '$0'\""


@pytest.mark.machine("root")
def test_what_a_process_of_another_mount_namespace_opens_is_listed_and_what_others_open_is_not(tmp_path: Path) -> None:
    seen, unseen = tmp_path / "seen", tmp_path / "unseen"
    for path in (seen, unseen):
        path.write_text("text")
    env = {name: value for name, value in os.environ.items() if name != NAME_VARIABLE}
    with Opened() as opened:
        subprocess.run(["unshare", "-m", "sh", "-c", SCRIPT, str(seen)], env=env, check=True)
        subprocess.run(["cat", str(unseen)], env=env, check=True, capture_output=True)

    assert str(seen) in opened.paths and any(path.endswith("bin/cat") for path in opened.paths)
    assert str(unseen) not in opened.paths
