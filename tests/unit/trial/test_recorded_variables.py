"""Which variables of a job are recorded, and how a side is given one that is kept as a digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tare.base.errors import TrialError
from tare.base.host import Job
from tare.base.secrets import digest, is_mask
from tare.plan.matrix import Trial, cells
from tare.studies.load import from_plain
from tare.testing import FakeHost
from tare.trial import engine
from tare.trial.tenants import Tenant

WORKDIR = Path("/dev/shm/tare-1-workdir")


def recorded(env: dict[str, str], inside: dict[str, Any], *argv: str) -> dict[str, str]:
    job = Job(argv or ("python3", "train.py"), env=env)
    return engine._variables(Tenant(cast(Any, None), FakeHost(), WORKDIR, job), inside)


def test_all_variables_are_recorded_and_no_value_that_may_be_secret():
    found = recorded(
        {"APP": "CANARY words", "GOMAXPROCS": "1", "TARE_MARKS": "/x", "PYTHONPATH": f"{WORKDIR}/inside"}, {}
    )

    assert found.keys() == {"APP", "GOMAXPROCS"}
    assert found["GOMAXPROCS"] == "1" and is_mask(found["APP"])


def test_what_a_place_set_itself_counts_and_what_env_took_away_does_not():
    """A hook of a runtime may set a thread count; `env -u` stands before the launcher, and not before who looks."""
    inside = {"env": {"OMP_NUM_THREADS": "1", "LD_DEBUG": "all"}}

    assert recorded({"OMP_NUM_THREADS": "8"}, inside)["OMP_NUM_THREADS"] == "1"
    assert "LD_DEBUG" not in recorded({}, inside, "env", "-u", "LD_DEBUG", "python3")
    assert recorded({"A": "1"}, {}) == {"A": "1"}  # nothing could look inside: what was given is known all the same


def test_a_digest_is_set_as_the_value_that_it_stands_for_and_an_unknown_one_is_refused():
    assert engine._as_it_is("APP", digest("some words")) == "some words"
    assert (engine._as_it_is("APP", None), engine._as_it_is("APP", "plain")) == (None, "plain")
    with pytest.raises(TrialError, match="the value of APP is kept as a digest"):
        engine._as_it_is("APP", "hmac:0000:0000000000000000")


def test_a_secret_of_another_sides_image_is_masked_in_what_is_written_down():
    planned = cells(from_plain({"study": "s", "platform": "bare", "workload": {"command": ["true"]}}))
    trial = Trial("s", planned[0], 0, 0, 0, 1.0)
    job = Job(("true",), env={"HF_TOKEN": "CANARYcanary7"})

    assert "CANARY" in engine._secrets(trial).text("it printed CANARYcanary7")
    assert "CANARY" not in engine._secrets(trial, [job]).text("it printed CANARYcanary7")
