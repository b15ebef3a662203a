"""crun: runc's bundle, by another program, which is called so that it starts on machines with both control groups."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tare.base.host import LocalHost
from tare.parts.platforms.crun import _HYBRID, Crun
from tare.parts.platforms.runc import Runc
from tare.testing import FakeHost


def test_its_fields_are_those_of_runc_and_its_state_is_its_own():
    assert set(Crun.model_fields) == set(Runc.model_fields)
    assert (Crun.runtime().state, Runc.runtime().state) == ("/run/tare/crun", "/run/tare/runc")
    assert any("apt-get install crun" in str(each) for each in Crun().obstacles(FakeHost()))


def test_every_call_goes_through_what_hides_the_second_version():
    words = Crun.runtime().argv("tare-1")

    assert words[:4] == ("sh", "-c", _HYBRID, "crun")
    assert words[4:] == ("crun", "--root", "/run/tare/crun")
    assert Crun.runtime().found(LocalHost()).argv("tare-1")[:4] == words[:4]


def test_where_there_is_one_version_the_program_is_called_as_it_is(tmp_path: Path):
    script = _HYBRID.replace("/sys/fs/cgroup/unified/cgroup.controllers", str(tmp_path / "missing"))

    done = subprocess.run(["sh", "-c", script, "crun", "echo", "a b"], capture_output=True, text=True, check=True)

    assert done.stdout == "a b\n"
