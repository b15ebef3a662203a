import os
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from tare.base.errors import TrialError
from tare.base.host import LocalHost, Scope
from tare.drivers.cgroups import tree
from tare.parts.probes.cgroup import Cgroup
from tare.records.spool import read_spool
from tare.trial.sampler import Sampler

BUSY = "import time; end = time.monotonic() + 0.5\nwhile time.monotonic() < end: bytearray(1 << 20)"
ENTER = 'for file do case "$file" in --) shift; break;; esac; echo $$ > "$file"; shift; done; exec "$@"'


@pytest.fixture
def group():
    host = LocalHost()
    name = f"tare-test-{os.getpid()}-{time.monotonic_ns():x}"
    folders = tree.make(host, name)
    yield folders
    with suppress(TrialError):
        tree.remove(host, folders)


@pytest.mark.machine("root")
def test_what_a_process_in_the_group_used_is_counted_there(group, tmp_path):
    files = dict.fromkeys(f"{folder}/cgroup.procs" for folder in group.values())
    with Sampler((Cgroup(),), tmp_path / "spool.db", period_s=0.05) as sampler:
        sampler.begin(Scope(cgroups=group))
        subprocess.run(["/bin/sh", "-c", ENTER, "enter", *files, "--", sys.executable, "-c", BUSY], check=True)
        report = sampler.end()
    series = {name: values for name, (_, values) in read_spool(tmp_path / "spool.db").items()}
    used_s = series["cgroup.cpu_s"][-1] - series["cgroup.cpu_s"][0]
    assert 0.01 < used_s < 60
    assert series["cgroup.minor_faults"][-1] - series["cgroup.minor_faults"][0] > 100
    assert report.lost == []
    assert report.errors == {}


@pytest.mark.machine("root")
def test_a_group_that_is_removed_under_the_sampler_is_lost_in_words_and_the_rest_goes_on(group, tmp_path):
    with Sampler((Cgroup(),), tmp_path / "spool.db", period_s=0.05) as sampler:
        sampler.begin(Scope(cgroups=group))
        tree.remove(LocalHost(), group)
        time.sleep(0.2)
        report = sampler.end()
    assert any(sentence.startswith("cgroup: memory.stat vanished at ") for sentence in map(str, report.lost))
    assert report.ticks >= 3
    assert len(read_spool(tmp_path / "spool.db")["cgroup.cpu_s"][1]) < report.ticks
