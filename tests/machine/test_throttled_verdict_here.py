"""A container that its quota stops is never called equivalent, and no gate lets it through; run for real."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import warm_tare

from tare.records.store import Store

WORK = Path(__file__).with_name("steps_of_work.py")


@pytest.mark.alone  # beside others it would not get the nine tenths that its quota allows, and would not be stopped
@pytest.mark.machine("runc", "root")
@pytest.mark.deep
def test_a_quota_of_nine_tenths_of_a_core_is_not_equivalent_and_fails_the_gate(tmp_path: Path) -> None:
    study = {
        "study": "throttled",
        "platform": ["bare", {"runc": {"quota": 0.9}}],
        "workload": {"command": {"argv": [sys.executable, str(WORK), "100"], "attach": "none", "malloc": "fixed"}},
        "repeat": 6,
        "aa": False,
        "rehearse": False,
    }
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    done = warm_tare.run("run", "study.yaml", "-o", "store", cwd=tmp_path)
    with Store.open(tmp_path / "store") as store:
        inside = [record for record in store.records() if record.settings["platform"] == "runc"]
    assert sum(record.metrics.get("cgroup_nr_throttled", 0.0) > 0 for record in inside) > 3, done.stderr

    # The widest limit: what fails is what the figure hides, or the mean itself; never the median's +3 %.
    gated = warm_tare.run("compare", "store", "--metric", "step_s", "--fail-over", "90%", "--json", cwd=tmp_path)

    assert gated.returncode == 1, gated.stderr
    told = json.loads(gated.stdout)
    (found,) = told["comparisons"]
    assert found["verdict"] != "equivalent"
    assert "compare.throttled" in [each["code"] for each in found["withheld"]]
    assert "gate.hidden" in [each["code"] for each in told["gate"]["reasons"]]
    plain = json.loads(warm_tare.run("compare", "store", "--json", cwd=tmp_path).stdout)
    assert plain["comparisons"][0]["metric"] == "step_mean_s"
