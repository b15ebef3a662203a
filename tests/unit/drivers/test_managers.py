from __future__ import annotations

from pathlib import Path

import pytest

from tare.base.host import LocalHost
from tare.drivers.power.everything import conflicts, running

# Here, and not within a validation, where Python 3.11's parser may fail on what pytest rewrites (gh-106905).
from tare.parts.controls import power  # noqa: F401
from tare.parts.platforms import bare  # noqa: F401
from tare.parts.workloads import command  # noqa: F401
from tare.plan.check import check
from tare.plan.matrix import cells
from tare.studies.model import Study
from tare.testing import FakeHost
from tare.trial.facts import device_facts
from trees.server import x86

TUNED = ["/usr/bin/python3", "-Es", "/usr/sbin/tuned", "-l", "-P"]


def with_process(root: Path, *commands: list[str]) -> LocalHost:
    x86(root)
    for number, words in enumerate(commands, start=100):
        folder = root / "proc" / str(number)
        folder.mkdir(parents=True)
        (folder / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
    return LocalHost(root=root)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (TUNED, "TuneD"),
        (["/usr/libexec/power-profiles-daemon"], "power-profiles-daemon"),
        (["/opt/auto-cpufreq/venv/bin/python", "/opt/auto-cpufreq/venv/bin/auto-cpufreq", "--daemon"], "auto-cpufreq"),
        (["python3", "/usr/share/nvpmodel_indicator/nvpmodel_indicator.py"], "the nvpmodel indicator"),
        (["/usr/sbin/irqbalance", "--foreground"], "irqbalance"),
        (["/usr/bin/python3", "/usr/local/bin/jtop", "--force"], "jtop"),
        (["/usr/sbin/nvfancontrol"], "nvfancontrol"),
    ],
)
def test_a_manager_is_known_by_its_process(tmp_path: Path, words: list[str], name: str):
    assert [one.name for one in running(with_process(tmp_path, words))] == [name]


def test_tlp_is_no_process_but_leaves_a_folder(tmp_path: Path):
    host = with_process(tmp_path)
    (tmp_path / "run" / "tlp").mkdir(parents=True)
    assert [one.name for one in running(host)] == ["TLP"]


def test_a_process_that_only_mentions_one_is_none(tmp_path: Path):
    assert running(with_process(tmp_path, ["vi", "/etc/tuned.conf"], ["sleep", "1"])) == []
    assert running(FakeHost()) == []


def test_it_is_in_the_way_only_of_what_it_manages_and_the_command_is_named(tmp_path: Path):
    host = with_process(tmp_path, TUNED)
    assert conflicts(host, {"gpu_mhz", "fan"}) == []
    (sentence,) = map(str, conflicts(host, {"cpu_mhz", "governor"}))
    assert "TuneD manages cpu_mhz, governor" in sentence
    assert "`sudo systemctl stop tuned`" in sentence
    assert "--ignore-managers" in sentence


def test_a_study_is_refused_for_it_unless_told_otherwise_and_the_record_names_it(tmp_path: Path):
    host = with_process(tmp_path, TUNED)
    plain = {"study": "m", "platform": "bare", "workload": {"command": {"argv": ["true"]}}}
    study = Study.model_validate({**plain, "control": {"power_mode": {"cpu_mhz": 1200}}})
    its_cells = cells(study)
    (blocked,) = [each for each in check(study, its_cells, host).blocked if each.code == "device.managed"]
    assert str(blocked).startswith("control power_mode: TuneD manages cpu_mhz")
    ignored = check(study, its_cells, host, ignore_managers=True).blocked
    assert "device.managed" not in [each.code for each in ignored]
    assert device_facts(host)["managers"] == "TuneD"
