"""A worker on a device: the line that starts it. Whether it works is for tests/machine/test_fleet_faults_here.py."""

from __future__ import annotations

from itertools import pairwise

import pytest
from click.testing import CliRunner

from tare.base.errors import StudyError
from tare.cli.device import fleet
from tare.fleet.clusters import worker_command, worker_environment


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))


def test_it_listens_on_the_address_that_faces_the_scheduler_and_looks_at_itself_seldom(tmp_path):
    key = tmp_path / "key.pem"
    key.touch()
    words = worker_command("tls://127.0.0.1:8786", "board", {"--tls-key": key})
    pairs = dict(pairwise(words))
    assert (pairs["--host"], pairs["--dashboard-address"]) == ("127.0.0.1", "127.0.0.1:0")
    assert (pairs["--resources"], pairs["--nthreads"], pairs["--memory-limit"]) == ("device=1", "1", "0")
    assert (pairs["--name"], pairs["--tls-key"], pairs["--protocol"]) == ("board", str(key), "tls")
    assert "--no-nanny" in words
    environ = worker_environment("tls://127.0.0.1:8786")
    assert environ["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"
    assert environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] == "False"
    assert worker_environment("tcp://127.0.0.1:8786")["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "False"


@pytest.mark.parametrize("address", ["10.0.0.1:8786", "tls://10.0.0.1", "ws://10.0.0.1:1", "tls://10.0.0.1:many", ""])
def test_what_is_no_address_of_a_scheduler_is_refused(address):
    with pytest.raises(StudyError, match="no address of a scheduler"):
        worker_command(address, "board", {})


def test_a_key_that_is_not_there_is_said_before_anything_starts(tmp_path):
    with pytest.raises(StudyError, match=r"no file .*missing\.pem"):
        worker_command("tls://127.0.0.1:8786", "board", {"--tls-key": tmp_path / "missing.pem"})


def test_the_verb_needs_a_cluster():
    said = CliRunner().invoke(fleet, ["worker"])
    assert said.exit_code == 2
    assert "--cluster" in said.output
