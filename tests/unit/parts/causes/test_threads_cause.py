"""The number of threads as a cause: by variables, by options of the command, and by what known servers take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tare.parts.causes.cpu import CpuQuota, Threads, thread_options
from tare.parts.causes.variables import OtherArguments
from tare.parts.protocols import RuledOut, Side, Suspicion

LLAMA = ("python", "-m", "llama_cpp.server", "--model", "tiny.gguf")


def side(*words: str, cores: float = 1, host: int = 16, fields: dict[str, Any] | None = None, **facts: Any) -> Side:
    known = {"place.usable_cores": cores, "place.host_cores": host, "command.words": list(words), "kernel": "6.1"}
    return Side(
        "runc", "runc", fields or {}, {**known, **{name.replace("_", ".", 1): each for name, each in facts.items()}}
    )


def suspected(slow: Side, quick: Side) -> Suspicion:
    found = Threads().examine(slow, quick)
    assert isinstance(found, Suspicion), found
    return found


def test_an_option_with_more_threads_than_cores_is_suspected_though_both_sides_have_it():
    words = ("server", "--threads=16", "--port", "8000")
    found = suspected(side(*words, cores=2, served_threads=21), side(*words, cores=16))

    assert found.without == {"arguments": {"--threads": "2"}}
    assert found.cure == "--threads 2"
    assert found.evidence == "--threads 16, on 2 cores (21 threads were seen at once)."
    assert isinstance(Threads().examine(side(*words, cores=16), side(*words, cores=16)), RuledOut)


def test_an_option_of_one_side_alone_is_tried_both_ways_and_cured_as_on_the_other():
    slow = side(*LLAMA, "--n_threads", "1", fields={"arguments": {"--n_threads": "16"}}, host=1)
    found = suspected(slow, side(*LLAMA, "--n_threads", "1", host=1))

    assert found.without == {"arguments": {"--n_threads": "1"}}
    assert found.added == {"arguments": {"--n_threads": "16"}}
    assert found.cure == "--n_threads 1"
    assert "--n_threads 16 (threads, on 1 core)" in found.evidence


def test_a_known_server_without_the_option_takes_the_hosts_cores_and_is_cured_by_the_option():
    found = suspected(side(*LLAMA, cores=2), side(*LLAMA, cores=16))

    assert found.without == {"arguments": {"--n_threads": "2", "--n_threads_batch": "2"}}
    assert found.cure == "--n_threads 2 --n_threads_batch 2"
    assert "--n_threads 8 by default, --n_threads_batch 16 by default, on 2 cores" in found.evidence
    given = side(*LLAMA, "--n_threads", "2", "--n_threads_batch", "2", cores=2)
    assert isinstance(Threads().examine(given, side(*LLAMA, cores=16)), Suspicion)  # the sides differ
    assert Threads().examine(given, given) == RuledOut("2 threads on 2 cores.")


def test_what_differs_and_what_both_have_too_many_of_are_cured_together():
    slow = side(*LLAMA, "--n_threads", "16", cores=1, host=2)
    found = suspected(slow, side(*LLAMA, "--n_threads", "1", cores=2, host=2))

    assert found.without == {"arguments": {"--n_threads": "1", "--n_threads_batch": "1"}}
    assert found.cure == "--n_threads 1 --n_threads_batch 1"


def test_the_core_that_makes_the_load_is_not_one_of_the_servers():
    words = ("app", "--threads", "2")
    assert side(*words, cores=2).cores == 2
    assert side(*words, cores=2, served_cores=1).cores == 1
    assert suspected(side(*words, cores=2, served_cores=1), side(*words, cores=2)).cure == "--threads 1"


def test_which_options_are_a_number_of_threads():
    llama = side("/opt/llama-server", "-t", "4", "-tb", "8", "--threads-http", "3")
    assert thread_options(llama) == {"-t": 4, "-tb": 8}
    assert thread_options(side("tar", "-t", "4", "--cpu-threads", "many", "--intra_op_num_threads", "3")) == {
        "--intra_op_num_threads": 3
    }
    assert thread_options(Side("docker", "docker")) == {}


def test_an_option_that_no_cause_knows_is_tried_as_such():
    slow = side("app", "--mode", "checked", "--threads", "4", cores=8)
    found = OtherArguments().examine(slow, side("app", "--threads", "2", cores=8))

    assert isinstance(found, Suspicion)
    assert found.without == {"arguments": {"--mode": None}}
    assert found.cure == "without --mode"
    assert isinstance(OtherArguments().examine(slow, slow), RuledOut)


def test_a_stop_on_sixteen_cores_at_once_is_as_long_as_its_period_and_not_sixteen_times_as_long():
    """The kernel's own figures of an H200's host: 35 periods, 19.81 s summed over cores, in a run of 12.2 s."""
    metrics = {"wall_s": 12.2, "cgroup_nr_throttled": 35.0, "cgroup_throttled_s": 19.81, "cpu_s": 12.0}
    slow = Side("runc", "runc", {"quota": 1}, {}, metrics)

    found = CpuQuota().examine(slow, Side("bare metal", "bare", {}, {}, {"wall_s": 8.0}))

    assert isinstance(found, Suspicion)
    assert found.evidence == "a quota of 1 core, throttled in 35 periods (at most 29% of the run)."
    shorter = CpuQuota().examine(replace(slow, facts={"cgroup.cpu_period_s": 0.01}), Side("bare metal", "bare"))
    assert isinstance(shorter, Suspicion)
    assert "at most 3% of the run" in shorter.evidence


def test_a_quota_whose_periods_were_not_counted_is_not_acquitted() -> None:
    slow = side(fields={"quota": 0.5})
    bare = Side("bare metal", "bare", {}, {}, {"wall_s": 3.0})

    assert isinstance(CpuQuota().examine(replace(slow, metrics={"wall_s": 9.0}), bare), Suspicion)
    counted = replace(slow, metrics={"wall_s": 9.0, "cgroup_nr_throttled": 0.0})
    assert isinstance(CpuQuota().examine(counted, bare), RuledOut)
