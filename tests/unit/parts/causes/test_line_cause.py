"""The options of somebody's own line as suspects: each alone, cured by a change of the line."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tare.base.host import LocalHost
from tare.cli.own_line import Taken, cured
from tare.drivers.containers.line import parsed
from tare.parts.platforms.own import Own
from tare.parts.protocols import Side, Suspicion
from tare.plan.why import Level, Search, examined, without

pytestmark = pytest.mark.machine("docker command")
TEXT = (
    "docker run --cpus 0.5 -m 2g --memory-swap 2g --ulimit nofile=20000:20000 --init --name mine "
    "-e LOGLEVEL=debug -e URL=postgres://me:canary@db -v /data:/data app:1 python train.py"
)
FIELDS = {"line": TEXT, "env": {"LOGLEVEL": "debug"}}
SLOW = Side("container", "own", {**FIELDS, **Own.limits(FIELDS)}, {}, {"wall_s": 9, "cpu_s": 1})
QUICK = Side("bare metal", "bare", {}, {}, {"wall_s": 3, "cpu_s": 2.9})


def taken(text: str = TEXT) -> Taken:
    return Taken(parsed(shlex.split(text), LocalHost()), {**FIELDS, "line": text}, {}, {"IN_IMAGE"})


def test_its_options_are_limits_as_other_platforms_have_them() -> None:
    assert Own.limits(FIELDS) == {"image": "app:1", "quota": 0.5, "memory": 2 << 30, "ulimits": {"nofile": 20000}}
    assert Own.limits({"line": "docker run --cpu-quota 50000 --cpu-period 200000 a"}) == {"image": "a", "quota": 0.25}
    assert Own.limits({"line": "docker run --cpu-period 0 --cpu-quota 50000 a"}) == {"image": "a", "quota": 0.5}
    for unlimited in ("--cpus 0", "--cpu-quota -1", "--cpu-quota=0 --cpu-period=0"):
        assert Own.limits({"line": f"docker run {unlimited} a"}) == {"image": "a"}
    assert Own.limits({"line": "docker run -m much --shm-size 64m a"}) == {"image": "a", "shm": 64 << 20}


def test_each_is_tried_once_by_the_line_without_it() -> None:
    held = examined(SLOW, QUICK).held

    assert {"cpu_quota", "memory_limit", "line:--ulimit=nofile", "line:--init"} <= held.keys()
    assert not {"line:--cpus", "line:--memory", "line:--memory-swap", "line:--name", "line:--volume"} & held.keys()
    sides = Search(Level("own", FIELDS), Level("bare", {}), held)
    flags = {name: sides._levels(name)[without(name)].fields.get("flags") for name in held if sides._levels(name)}
    assert flags["cpu_quota"] == {"--cpus": None}
    assert flags["memory_limit"] == {"--memory": None, "--memory-swap": None}
    assert flags["line:--init"] == {"--init": None}
    assert sides._levels("cpu_quota")["with cpu_quota"].fields == {"quota": 0.5}


def test_a_volume_is_tried_in_memory_a_user_and_an_entry_point_by_the_line_without_them(tmp_path: Path) -> None:
    text = f"docker run -v {tmp_path}:/data:ro -v /no/such:/x -u 1000 --cap-add SYS_NICE app:1 python train.py"
    fields = {"line": text}
    slow = Side("container", "own", {**fields, **Own.limits(fields)}, {"place.engine.entry": "/traced.sh"})
    held = examined(slow, QUICK).held
    sides = Search(Level("own", fields), Level("bare", {}), held)

    assert held["line:--volume#1"].without == {"in_memory": ["/data"]} and "line:--volume#2" not in held
    assert held["line:--user"].weakens and held["line:--cap-add"].without == {"flags": {"--cap-add": None}}
    changed = sides._levels("line:entry")[without("line:entry")]
    assert changed.fields == {"line": text, "entry": "none"}
    line = Own(**changed.fields)._line()
    assert line.words()[-3:] == ("--entrypoint=python", "app:1", "train.py")
    hidden = Own(line=text, hidden=["/a.pth"])._line()
    assert hidden.words()[-4:] == ("--volume=/dev/null:/a.pth:ro", "app:1", "python", "train.py")


def test_a_variable_of_the_line_is_tried_alone_beside_all_that_differ() -> None:
    shells = {f"OF_A_SHELL_{number}": "1" for number in range(9)}
    slow = replace(SLOW, facts={"variables": {"LOGLEVEL": "debug", "PATH": "/a"}})
    quick = replace(QUICK, facts={"variables": {**shells, "PATH": "/b"}})
    held = examined(slow, quick).held

    assert held["other_variables"].bundle
    assert held["line:--env=LOGLEVEL"].without == {"env": {"LOGLEVEL": None}}
    assert held["line:--env=LOGLEVEL"].weight > held["other_variables"].weight
    assert "line:--env=LOGLEVEL" not in examined(slow, replace(QUICK, facts={"variables": {"PATH": "/b"}})).held


def test_another_image_in_the_same_line_is_where_the_cost_is_located() -> None:
    fields = {**FIELDS, "line": TEXT.replace("app:1", "app:2")}
    other = replace(SLOW, fields={**fields, **Own.limits(fields)})
    held = examined(SLOW, other).held

    assert not [name for name in held if name.startswith("line:")] and "cpu_quota" not in held
    slow = Level("own", FIELDS)
    same = Level("own", {**FIELDS, "line": slow.changed({"image": "app:2"}).fields["line"]})
    assert Search(slow, same, held).located() == ["software"]


def test_the_cure_is_their_line_without_what_costs_and_without_their_secrets() -> None:
    held = examined(SLOW, QUICK).held
    said = cured(taken(), held, ["cpu_quota"])["cpu_quota"]

    first, line, note = said.split("\n")
    assert first == "without `--cpus 0.5`:"
    assert "canary" not in said and "hmac:" in line and "hmac:" in note
    assert line.startswith("docker run -m 2g") and line.endswith("-v /data:/data app:1 python train.py")


def test_a_variable_of_the_image_is_taken_away_by_an_option() -> None:
    held = {"other_variables": Suspicion(0.5, "seen.", {"env": {"IN_IMAGE": None}}, cure="env -u IN_IMAGE COMMAND...")}
    first, line = cured(taken("docker run app:1 python train.py"), held, [])["other_variables"].split("\n")

    assert first == "with `--env=IN_IMAGE`:"
    assert line == "env -u IN_IMAGE docker run --env=IN_IMAGE app:1 python train.py"


@pytest.mark.parametrize("allowed", [False, True])
def test_a_network_is_tried_only_where_the_runs_have_the_one_of_the_line(allowed: bool) -> None:
    fields = {"line": "docker run --network none --init app:1", "allow_network": allowed}
    held = examined(replace(SLOW, fields=fields), QUICK).held

    assert "line:--init" in held and ("line:--network" in held) == allowed


def test_of_several_causes_the_last_has_the_line_that_is_cured_of_all() -> None:
    text = TEXT.replace("-e URL=postgres://me:canary@db ", "")
    said = cured(taken(text), examined(SLOW, QUICK).held, ["cpu_quota", "memory_limit", "line:--init"])

    assert said["cpu_quota"] == "without `--cpus 0.5`:"
    first, line = said["line:--init"].split("\n")
    assert first == "without `--init`: With all of these:"
    assert line == (
        "docker run --ulimit nofile=20000:20000 --name mine -e LOGLEVEL=debug -v /data:/data app:1 python train.py"
    )
