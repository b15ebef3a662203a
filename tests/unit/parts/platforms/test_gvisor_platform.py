"""gVisor: the device sees one process for the whole container, so that jobs are ended from inside."""

from __future__ import annotations

import pytest

from tare.base.host import Completed
from tare.parts.platforms.gvisor import Gvisor, Sandbox, _code
from tare.testing import FakeHost

ALIVE, ZOMBIE = "7 (exe) S 1 7", "7 (exe) Z 1 7"
LOST = 'waiting on pid 3: waiting on PID 3 in sandbox "x": EOF'
NO_COMMAND = "executing processes for container: no such file or directory"


def sandbox(stat: str | None = ALIVE, **more: object) -> Sandbox:
    return Sandbox(
        FakeHost(files={} if stat is None else {"/proc/7/stat": stat}, **more), keeper=7, kill=("end", "all")
    )


def test_each_container_has_a_state_folder_of_its_own_since_runsc_takes_a_name_for_any_longer_one():
    runtime = Gvisor.runtime()

    assert runtime.argv("tare-1")[:3] == ("runsc", "--root", "/run/tare/runsc/tare-1")
    assert runtime.root("tare-1") != runtime.root("tare-1-1")


def test_jobs_are_ended_from_inside_while_there_is_an_inside():
    alive, dead = sandbox(), sandbox(ZOMBIE)

    alive.kill_jobs()
    dead.kill_jobs()

    assert alive.host.asked == [("end", "all")]  # type: ignore[attr-defined]
    assert dead.host.asked == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("stat", "code", "err", "told"),
    [
        (ALIVE, 0, "", 0),
        (ALIVE, 3, "", 3),
        (ALIVE, 128, NO_COMMAND, 127),
        (ALIVE, 128, LOST, 137),
        (ZOMBIE, 128, "", 137),
        (None, 128, NO_COMMAND, 137),
        (ALIVE, 128, "its own", 128),
    ],
)
def test_runscs_own_failure_is_told_in_a_shells_words(stat, code, err, told):
    assert _code(sandbox(stat), code, err) == told


def test_a_dead_run_is_swept_in_its_own_folder_which_goes_too():
    host = FakeHost(answer=lambda argv: Completed(tuple(argv), 0, "", ""))

    Gvisor.sweep(host, "tare-1")

    deleted = [argv for argv in host.asked if "delete" in argv]
    assert deleted == [(*Gvisor.runtime().argv("tare-1"), "delete", "--force", "tare-1")]
    assert ("rm", "-rf", "--one-file-system", "--", "/run/tare/runsc/tare-1") in host.asked
