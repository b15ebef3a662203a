"""What every cause of the catalogue holds to: it answers on any facts, its changes are fields that platforms have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tare.parts.find import find, names
from tare.parts.protocols import Absent, Cause, Known, NotLooked, RuledOut, Side, Suspicion

NAMES = names("causes")
# A line of the user's is suspected of one platform alone: tests/unit/parts/causes/test_line_cause.py.
OF_ANY_PLATFORM = [name for name in NAMES if name != "line"]
PHASES = {"start", "data", "compute", "gpu", "tail"}
BARE = Side(
    "bare metal",
    "bare",
    {},
    {
        "place.usable_cores": 16,
        "place.entry": "none",
        "place.host_cores": 16,
        "machine": "x86_64",
        "libc": "glibc 2.36",
        "command.words": ["app", "--mode", "quick"],
        "kernel": "6.1",
        "variables": {"PATH": "/usr/bin"},
        "limits.nofile": [1024, 4096],
        "limits.nproc": [-1, -1],
        "limits.stack": [8 << 20, -1],
        "process.Cpus_allowed_list": "0-15",
        "file_system.tmp": "ext4",
        "device.kernel": "6.1",
        "device.cpu": "one",
        "python.version": "3.12.1",
        "startup.looked": True,
        "modules.looked": True,
        "beside.looked": True,
        "torch.threads": 16,
        "torch.gpu.name": "A100",
    },
)
# A container in which everything is wrong that can be.
WORST = Side(
    "docker",
    "docker",
    {
        "quota": 2.0,
        "cpuset": "0-1",
        "memory": 1 << 30,
        "shm": 64 << 20,
        "image": "app:1",
        "env": {"LD_DEBUG": "all", "APP_CHECKS": "1"},
        "cpu_shares": 2,
        "io_rate": 1 << 20,
        "arguments": {"--mode": "checked"},
        "ulimits": {"memlock": 65536, "core": 0},
    },
    {
        "place.usable_cores": 2,
        "place.entry": "traced --all",
        "place.host_cores": 16,
        "machine": "aarch64",
        "libc": "musl 1.2",
        "kernel": "6.1",
        "torch.threads": 16,
        "torch.gpu.name": "H200",
        "python.debug": True,
        "startup.looked": True,
        "startup.files./app/sitecustomize.py": "0a",
        "modules.looked": True,
        "modules.uncompiled./usr/lib/python3.12": "all",
        "beside.looked": True,
        "beside.cpu_s.indexer": 8.5,
        "modules.uncompiled./app": ["parts"],
        "process.Cpus_allowed_list": "0-1",
        "file_system.work": "overlay",
        "limits.memlock": [65536, 65536],
        "device.cpu": "another",
        "env.MALLOC_CHECK_": "3",
        "env.ATEN_CPU_CAPABILITY": "default",
        "env.NCCL_P2P_DISABLE": "1",
        "env.HF_HOME": "/cache",
        "env.PYTHONDONTWRITEBYTECODE": "1",
        "output.bytes": 1 << 20,
        "command.words": ["app", "--mode", "quick"],
    },
    {
        "cgroup_nr_throttled": 90,
        "cgroup_throttled_s": 7,
        "wall_s": 10,
        "cpu_s": 1,
        "run_queue_s": 0,
        "major_faults": 5000,
    },
)
QUICK = Side(
    BARE.name,
    BARE.platform,
    BARE.fields,
    {**BARE.facts, "python.debug": False, "file_system.work": "ext4", "limits.memlock": [-1, -1], "shm.bytes": 8 << 30},
    {"wall_s": 5, "cpu_s": 4.9, "run_queue_s": 0, "major_faults": 0, "minor_faults": 100},
)


def cause(name: str) -> Any:
    return find("causes", name)()


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is_for_people(name: str):
    found = find("causes", name)

    assert issubclass(found, Cause)
    assert found.title and not found.title.endswith(".")
    assert found.phases and found.phases <= PHASES
    assert (found.__doc__ or "").strip().endswith(".")


@pytest.mark.parametrize("name", OF_ANY_PLATFORM)
def test_it_suspects_where_everything_is_wrong_with_evidence_and_a_cure(name: str):
    found = cause(name).examine(WORST, QUICK)

    assert isinstance(found, Suspicion), found
    assert 0 < found.weight <= 1
    assert found.evidence.endswith(".")
    assert found.cure
    assert found.without is not None or found.added is not None or found.untried.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_it_rules_itself_out_where_both_sides_are_the_same(name: str):
    same = Side(
        "docker", "bare", {"network": "host", "shm": 8 << 30}, {**QUICK.facts, "process.Seccomp": "0"}, QUICK.metrics
    )
    found = cause(name).suspicions(same, QUICK).values()

    assert any(isinstance(each, RuledOut) and each.why.endswith(".") for each in found), found
    assert not any(isinstance(each, Suspicion) for each in found), found


@pytest.mark.parametrize("name", NAMES)
def test_it_needs_no_fact_at_all(name: str):
    nothing = Side("docker", "docker")

    found = cause(name).examine(nothing, Side("bare metal", "bare"))

    assert isinstance(found, (Suspicion, RuledOut, NotLooked))


# What tare itself sets up, and so knows without looking: it was started without them.
BY_ITS_OPTIONS = {"cold_layers", "cpu_weight", "io_limit", "line", "software"}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_was_recorded_rules_nobody_out(name: str):
    unrecorded = Side("docker", "docker"), Side("bare metal", "bare")
    found = cause(name).examine(*unrecorded)

    assert isinstance(found, RuledOut) == (name in BY_ITS_OPTIONS), found
    if isinstance(found, NotLooked):
        assert found.reason.endswith(".")


@pytest.mark.parametrize("name", ["debug_variables", "ulimits", "other_variables", "bytecode"])
def test_what_one_side_alone_recorded_rules_nobody_out(name: str):
    found = cause(name).examine(Side("docker", "docker"), QUICK)

    assert isinstance(found, NotLooked)
    assert "nothing was recorded inside docker" in found.reason


def test_an_older_record_has_no_limit_of_processes_and_variables_of_a_list_alone():
    older = {"kernel": "6.1", "env.OMP_NUM_THREADS": "4", "limits.nofile": [1024, 4096], "limits.memlock": [-1, -1]}
    side = Side("runc", "runc", {}, older)

    assert isinstance(cause("ulimits").examine(side, side), NotLooked)
    assert side.variable("OMP_NUM_THREADS") == Known("4")
    assert side.variable("PYTHONMALLOC") == Absent()
    assert isinstance(side.variable("LOGLEVEL"), NotLooked)
    assert isinstance(cause("other_variables").examine(side, side), NotLooked)


@pytest.mark.parametrize("name", OF_ANY_PLATFORM)
@pytest.mark.parametrize("platform", ["docker", "runc"])
def test_its_changes_are_fields_that_the_platforms_have(name: str, platform: str):
    slow = Side("it", platform, WORST.fields, WORST.facts, WORST.metrics)
    found = cause(name).examine(slow, QUICK)
    if isinstance(found, RuledOut):
        assert (name, platform) == ("output", "runc")  # which has no engine
        return

    known = {*find("platforms", platform).model_fields, "dockerfile", "network"}
    assert set(found.without or {}) <= known
    assert set(found.added or {}) <= set(find("platforms", "bare").model_fields)


def test_the_causes_of_the_field_are_there():
    assert {
        "allocator", "bytecode", "caches", "cold_layers", "cpu_quota", "cpu_set", "cpu_weight", "debug_variables",
        "entry_point", "instruction_set", "interconnect", "io_limit", "line", "memory_limit", "network",
        "other_arguments", "other_processes", "other_variables", "output", "recorded", "root_files", "seccomp",
        "shared_memory", "software", "start_up_files", "threads", "ulimits",
    } == set(NAMES)  # fmt: skip


def test_a_limit_of_processes_that_is_an_option_is_taken_away_and_given_to_the_other_side():
    found = cause("ulimits").examine(WORST, QUICK)

    assert isinstance(found, Suspicion)
    assert (found.without, found.added) == ({"ulimits": {"core": 0}}, {"ulimits": {"memlock": 65536}})
    assert found.cure == "--ulimit memlock=-1"


def test_a_limit_of_processes_that_is_higher_is_suspected_too():
    slow = Side("docker", "docker", {"ulimits": {"nofile": 20_000}}, {**QUICK.facts, "limits.nofile": [1024, 1 << 20]})
    found = cause("ulimits").examine(slow, QUICK)

    assert isinstance(found, Suspicion)
    assert found.evidence == "nofile 20000 instead of 1024."
    assert found.without == {"ulimits": {"nofile": 1024}}  # and not the engine's own limit
    assert found.cure == "--ulimit nofile=1024"


def test_a_limit_of_the_engine_is_lowered_and_not_raised_above_what_a_process_may():
    high = Side("docker", "docker", {}, {**QUICK.facts, "limits.nofile": [1 << 20, 1 << 20]})
    found = cause("ulimits").examine(high, QUICK)

    assert (found.without, found.added) == ({"ulimits": {"nofile": 1024}}, None)
    low = Side("docker", "docker", {}, {**QUICK.facts, "limits.nofile": [64, 64]})
    assert cause("ulimits").examine(low, QUICK).without is None


def test_causes_that_share_a_file_are_found_by_name_and_the_file_is_none():
    assert find("causes", "debug_variables").__name__ == "DebugVariables"
    assert find("causes", "bytecode").__module__ == find("causes", "caches").__module__
    assert "variables" not in NAMES


def test_a_memory_limit_is_suspected_without_faults_since_files_that_are_read_by_calls_leave_none():
    calm = {"wall_s": 5.0, "cpu_s": 1.0, "major_faults": 0.0, "max_rss_bytes": 17e6}
    limited = Side("runc", "runc", {"memory": 32 << 20}, {"device.memory_bytes": 1 << 34}, calm)

    found = cause("memory_limit").examine(limited, QUICK)

    assert isinstance(found, Suspicion)
    assert found.weight < cause("memory_limit").examine(WORST, QUICK).weight
    roomy = Side("runc", "runc", {"memory": 1 << 35}, limited.facts, calm)
    assert isinstance(cause("memory_limit").examine(roomy, QUICK), RuledOut)


def test_a_start_up_file_of_one_side_is_emptied_and_one_of_the_other_side_alone_cannot_be():
    found = cause("start_up_files").examine(WORST, QUICK)

    assert isinstance(found, Suspicion)
    assert found.evidence == "/app/sitecustomize.py is not as on the other side."
    assert found.without == {"hidden": ["/app/sitecustomize.py"]}
    turned = cause("start_up_files").examine(QUICK, WORST)
    assert turned.without is None and turned.untried


def test_of_several_start_up_files_halves_are_tried_and_one_that_lies_elsewhere_is_the_same():
    files = {"/a/site-packages/guilty.pth": "1", "/a/site-packages/distutils-precedence.pth": "2", "/a/same.pth": "3"}
    slow = replace(WORST, facts={**QUICK.facts, **{f"startup.files.{path}": digest for path, digest in files.items()}})
    other = replace(QUICK, facts={**QUICK.facts, "startup.files./b/same.pth": "3"})
    found = cause("start_up_files").examine(slow, other)

    assert isinstance(found, Suspicion) and found.bundle
    assert [half.without for half in found.parts] == [
        {"hidden": ["/a/site-packages/guilty.pth"]},
        {"hidden": ["/a/site-packages/distutils-precedence.pth"]},
    ]
    assert found.parts[0].weight > found.parts[1].weight


def test_an_entry_point_is_exchanged_but_not_one_with_a_secret():
    found = cause("entry_point").examine(WORST, QUICK)

    assert found.without == {"entry": "none"} and found.cure == "--entrypoint ''"
    hidden = replace(WORST, facts={**WORST.facts, "place.entry": "serve --token hmac:0a1b:0123456789abcdef"})
    assert cause("entry_point").examine(hidden, QUICK).without is None
    init = replace(QUICK, facts={**QUICK.facts, "place.entry": "tini -- '/my script.sh'"})
    assert cause("entry_point").examine(WORST, init).cure == "--entrypoint tini IMAGE -- '/my script.sh' COMMAND..."


def test_two_names_of_one_image_are_no_difference():
    sides = [Side("docker", "docker", {"image": name}, {"place.image_id": "sha256:0a"}) for name in ("app:1", "app:2")]

    assert isinstance(cause("software").examine(*sides), RuledOut)


def test_folders_without_compiled_files_are_compiled_and_those_of_both_sides_are_nobodys_fault():
    found = cause("bytecode").examine(WORST, QUICK)

    assert isinstance(found, Suspicion)
    assert found.without["compiled"] == ["/usr/lib/python3.12", "/app/parts"]
    assert "RUN python -m compileall /usr/lib/python3.12 /app/parts" in found.cure
    plain = replace(QUICK, facts={**QUICK.facts, "modules.uncompiled./app": ["parts"]})
    single = replace(QUICK, facts={**QUICK.facts, "modules.uncompiled./app": ["one.py"]})
    assert cause("bytecode").examine(single, QUICK).weight < found.weight
    assert isinstance(cause("bytecode").examine(plain, plain), RuledOut)


def test_a_compiled_extension_that_is_missing_here_is_in_the_evidence():
    modules = {"modules.names": ["markupsafe", "json"], "modules.looked": True}
    slow = Side("docker", "docker", {"image": "app:2"}, {**modules, "modules.extensions": ["numpy/core"]})
    facts = {**modules, "modules.extensions": ["_json", "markupsafe/_speedups", "other/_fast"]}
    found = cause("software").examine(slow, Side("docker", "docker", {"image": "app:1"}, facts))

    assert isinstance(found, Suspicion)
    assert found.evidence.startswith(
        "_json, markupsafe/_speedups is compiled on the other side"
    )  # not of a package it lacks


def test_who_waits_for_a_core_does_not_wait_for_the_network():
    slow = Side("docker", "docker", {}, {}, {"wall_s": 10, "cpu_s": 4, "run_queue_s": 5.9, "cpu_system_s": 1})
    quick = Side("bare metal", "bare", {}, {}, {"wall_s": 4.2, "cpu_s": 4, "run_queue_s": 0.1, "cpu_system_s": 1})

    assert isinstance(cause("network").examine(slow, quick), RuledOut)
    assert isinstance(cause("network").examine(replace(slow, metrics={"wall_s": 2, "cpu_s": 9}), quick), NotLooked)
