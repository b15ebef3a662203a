"""A small fleet of devices that pretend: dask, TLS, workers, store, ledger and merging are the real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.machine("distributed")
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.deep
def test_nothing_is_lost_and_nothing_runs_twice_though_lines_workers_and_devices_go():
    words = ["--devices", "40", "--trials", "3", "--trial-s", "1", "--kill", "--again", "--json"]
    argv = [sys.executable, "-m", "benchmarks.fleet", *words]
    said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert said.returncode == 0, said.stderr  # it counts every trial on both sides, and looks at every byte
    found = json.loads(said.stdout)
    assert found["processes"]["workers"]["count"] == 1
    vanished = "dev-0005"  # `vanishing` in benchmarks/fleet.py
    # On a busy machine one more device may be given up for this run; what it has is collected by the next.
    assert vanished in found["gone"]
    assert len(found["gone"]) <= 3
    assert vanished in found["accounted"]["left_on"]
    assert set(found["accounted"]["left_on"]) <= set(found["gone"])
    assert found["workers_lost"] > 10
    assert found["accounted_again"] == {"kept": 120, "left_on": [], "claims": found["accounted_again"]["claims"]}
    assert found["again"]["why"] == "all planned trials are done"
