"""`tare why` ends with what it knows: after few blocks, with a trial lost, and stopped in the middle."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import warm_tare

from tare.base.host import LocalHost
from tare.trial.device import device_id
from tare.trial.undo.journal import Journal

WORK = (sys.executable, str(Path(__file__).with_name("planted_work.py")), "8", "--compute", "100000")
QUOTA = ("--limit", "cpus=0.02", "--layers", "never")  # far below what is left of a core beside other tests


def pending() -> int:
    return len(Journal(Path(os.environ["TARE_STATE"]) / "devices" / device_id(LocalHost())).pending())


@pytest.mark.machine("docker", "root")
def test_a_quota_in_docker_ends_with_the_cause_its_proof_and_its_cure(tmp_path: Path) -> None:
    done = warm_tare.run("why", "--in", "docker", *QUOTA, "-o", "why", "--", *WORK, cwd=tmp_path, timeout=600)

    assert done.returncode == 0, done.stderr
    heads = {line.partition(":")[0]: line for line in done.stdout.splitlines()}
    assert "x slower [" in heads["Slower"], done.stdout
    assert "the CPU quota: a quota of 0.02 cores" in done.stdout
    assert "of the cost goes" in done.stdout and heads["Change"].startswith("Change: --cpus ")
    assert "unconfined" not in done.stdout + done.stderr and "ruled out" not in done.stdout
    assert len(done.stdout.splitlines()) <= 10

    shown = warm_tare.run("show", "why", "--json", cwd=tmp_path)
    told = json.loads(shown.stdout)
    assert "the CPU quota" in told["answer"] and "ruled out:" in told["answer"]
    assert {trial["settings"]["platform"] for trial in told["trials"]} == {"bare", "docker"}
    sides = (
        "--against",
        "bare, quota not set",
        "--metric",
        "step_mean_s",
    )  # four levels: both sides, and the quota moved
    compared = warm_tare.run("compare", "why", *sides, "--json", cwd=tmp_path)
    assert len(json.loads(compared.stdout)["comparisons"]) == 3, compared.stderr


@pytest.mark.machine("runc", "root")
@pytest.mark.parametrize("request_to_end", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.deep)])
def test_stopped_in_the_middle_of_the_proof_it_says_what_is_sure_leaves_nothing_and_goes_on(
    tmp_path: Path, request_to_end: signal.Signals
) -> None:
    asked = ("why", "--in", "runc", *QUOTA, "-o", "why", "--", *WORK)
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        run = warm_tare.start(*asked, cwd=tmp_path, out=out, err=err)
        deadline_s = time.monotonic() + 300
        while not list((tmp_path / "why").glob("tried-*/spool/*/draft.json")):
            assert run.poll() is None, (tmp_path / "err").read_text()
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        run.send_signal(request_to_end)
        assert run.wait(120) == 130

    told, said = ((tmp_path / name).read_text() for name in ("out", "err"))
    assert "Slower (sure): " in told, told + said
    assert "Suspect (not yet proved): the CPU quota" in told and "Try: --cpus " in told
    assert "This resumes:\n  tare why --in runc --limit cpus=0.02" in said
    assert pending() == 0

    done = warm_tare.run(*asked, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "the CPU quota" in done.stdout and "Proof: " in done.stdout
    assert done.stderr.count("rehearsal:") == 0
