"""Sensors that this machine has not, laid over its own /sys/class where nobody else sees it: the real sampler reads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from without_report import TARE

from trees import sensors

WATCH = str(Path(__file__).parent / "watch_sensors.py")
LAID_OVER = 'mount --bind "$1" /sys/class && shift && exec "$@"'

pytestmark = [pytest.mark.machine("root")]


@pytest.fixture
def classes(tmp_path):
    """/sys/class of a board with an AGX Orin's monitors and a server's energy counters."""
    sensors.x86(sensors.agx_orin(tmp_path), packages=1)
    return tmp_path / "sys/class"


def laid_over(classes, *argv):
    inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", LAID_OVER, "sh", str(classes)]
    return subprocess.run([*inside, *argv], check=False, capture_output=True, text=True, timeout=120)


def watched(classes, *, seconds=1.0, around=()):
    done = laid_over(classes, *around, sys.executable, WATCH, str(seconds))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.alone
def test_every_sensor_is_read_at_its_rate_and_nothing_is_lost(classes):
    found = watched(classes)
    assert found["obstacles"] == []
    assert found["report"]["lost"] == []
    series = found["series"]
    (watts,) = set(series["power_rails.total_w"])
    assert watts == pytest.approx(19.808 * 0.2 + 4.992 * 0.9)
    assert len(series["power_rails.total_w"]) >= 8
    assert len(series["temperature.tj_thermal_c"]) >= 8
    assert set(series["power_rapl.total_j"]) == {0.0}
    assert series["thermal.soctherm_oc_oc3_events"][0] == 7


def under_strace(classes, path, fault):
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pread64", "-P", path, "-e", f"inject={fault}"]
    found = watched(classes, seconds=2.0, around=strace)
    assert all(value > 0 for value in found["series"]["power_rails.total_w"])
    assert found["report"]["errors"]["power_rails"] > 0
    return found["report"], found["series"]


@pytest.mark.machine("strace")
def test_a_sensor_that_is_slow_is_told_and_delays_nobody(classes):
    report, series = under_strace(classes, "/sys/class/hwmon/hwmon1/in1_input", "pread64:delay_enter=700000")
    slow = ("power_rails: reads took up to", "power_rails: no response since")
    assert any(each["sentence"].startswith(slow) for each in report["lost"]), report["lost"]
    assert len(series["cpu.busy_s"]) == report["ticks"] > 3 * len(series["power_rails.total_w"])


@pytest.mark.machine("strace")
def test_a_sensor_that_fails_now_and_then_is_counted_and_goes_on(classes):
    report, series = under_strace(classes, "/sys/class/hwmon/hwmon3/in2_input", "pread64:error=EIO:when=3+4")
    says = "power_rails: VDDQ_VDD2_1V8AO gave nothing usable"
    assert any(each["sentence"].startswith(says) for each in report["lost"]), report["lost"]
    assert 0 < len(series["power_rails.vddq_vdd2_1v8ao_w"]) < len(series["power_rails.total_w"])


HOT = """
study: hot
about: does it stop?
platform: bare
workload: {command: {argv: [sleep, "60"]}}
probes: [temperature: {limit_c: 45, wait: 0s}]
repeat: 6
"""


def test_a_study_on_a_device_that_overheats_stops_each_trial_and_after_three_itself(classes, tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(HOT)
    done = laid_over(classes, *TARE, "run", str(study), "-o", str(tmp_path / "out"))
    assert done.returncode == 1, done.stderr
    assert "3 trials in a row failed in the same way" in done.stderr
    shown = subprocess.run(
        [sys.executable, "-m", "tare.cli", "show", str(tmp_path / "out"), "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    records = json.loads(shown.stdout)["trials"]
    assert [record["state"] for record in records] == ["failed"] * 3
    assert records[0]["reasons"][0]["code"] == "heat.stopped"
    assert "tj_thermal was at 49.0 °C; its limit is 45 °C." in {record["reasons"][1]["sentence"] for record in records}
