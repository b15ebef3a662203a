"""Who is suspected, ranked by the phase that is slower, and in which order suspects are tried."""

from __future__ import annotations

from dataclasses import replace

from tare.parts.causes.software import exchanged, untaken_text
from tare.parts.protocols import Side, Suspicion
from tare.plan.why import MOST_TRIED, Level, Search, added, examined, fitting, with_recorded_variables, without

VARIABLES = {"PYTHONPYCACHEPREFIX": "/none", "PYTHONTRACEMALLOC": "1"}
THROTTLED = {"wall_s": 9, "cpu_s": 1, "run_queue_s": 0, "cgroup_nr_throttled": 40, "cgroup_throttled_s": 5}
SLOW = Side("runc", "runc", {"quota": 0.5, "env": VARIABLES}, {}, THROTTLED)
QUICK = Side("bare metal", "bare", {}, {}, {"wall_s": 3, "cpu_s": 2.9, "run_queue_s": 0})


def suspicion(weight: float, **env: str) -> Suspicion:
    return Suspicion(weight, "seen.", {"env": dict.fromkeys(env)}, {"env": env}, "cure")


def search(**suspects: Suspicion) -> Search:
    return Search(Level("runc", {"quota": 1.0}), Level("bare", {}), suspects)


def test_a_guess_at_the_start_is_ruled_out_where_only_computing_is_slower_and_the_reason_says_so():
    found = examined(SLOW, QUICK, {"compute": 0.7, "gpu": 0.3})

    assert "cannot slow down the compute, where 70 % of the cost is" in found.ruled_out["network"]
    assert {"cpu_quota", "debug_variables"} <= found.held.keys()


def test_a_difference_that_was_seen_is_no_phase_to_acquit():
    found = examined(SLOW, QUICK, {"steps": 0.7, "tail": 0.3})

    assert found.held["bytecode"].given  # whatever a prefix of compiled files can slow down
    assert found.held["bytecode"].weight < examined(SLOW, QUICK, {"start-up": 1.0}).held["bytecode"].weight


def test_an_option_that_was_given_is_a_suspect_whatever_speaks_against_it():
    slow = Side(
        "runc",
        "runc",
        {"quota": 2.0, "cpu_shares": 4096, "memory": 1 << 40},
        {"device.memory_bytes": 1 << 30},
        THROTTLED,
    )
    found = examined(replace(slow, metrics={"wall_s": 9, "cgroup_nr_throttled": 0}), QUICK).held

    assert {"cpu_quota", "cpu_weight", "memory_limit"} <= found.keys()
    assert all(found[name].given for name in ("cpu_quota", "cpu_weight", "memory_limit"))
    assert found["cpu_quota"].without == {"quota": None} and found["cpu_quota"].added == {"quota": 2.0}
    assert "it was given: quota is 2.0; its quota of 2 cores was never used up." in found["cpu_quota"].evidence


def test_the_most_that_are_tried_leave_out_none_that_was_given():
    others = {f"other-{n}": suspicion(0.9, **{f"A{n}": "1"}) for n in range(MOST_TRIED + 2)}
    given = {f"given-{n}": replace(suspicion(0.1, **{f"B{n}": "1"}), given=True) for n in range(3)}
    wanted = search(**others, **given)

    assert wanted.candidates() == [f"other-{n}" for n in range(MOST_TRIED)] + [*given]
    wanted.learn({"other-0": "not it"})
    assert f"other-{MOST_TRIED}" not in wanted.candidates() and {*given} < {*wanted.candidates()}


def test_a_change_of_many_things_that_makes_both_sides_the_same_is_located_and_never_tried():
    both = Suspicion(0.6, "seen.", {"image": "/app-1"}, None, "cure", bundle=True)
    wanted = Search(Level("runc", {"image": "/app-2"}), Level("runc", {"image": "/app-1"}), {"software": both})

    assert wanted.candidates() == [] and wanted.next() == {}
    assert wanted.located() == ["software"]
    alone = Search(wanted.slow, Level("bare", {}), {"software": both})
    assert alone.candidates() == ["software"] and alone.located() == []


def test_a_cause_of_the_start_is_suspected_where_that_is_slower_and_ranked_by_it():
    found = examined(SLOW, QUICK, {"start-up": 1.0})

    assert "bytecode" in found.held
    assert fitting(frozenset({"start"}), {"start-up": 0.25, "steps": 0.75}) == 0.25
    assert fitting(frozenset({"compute"}), {}) == 1.0


def test_a_quota_that_throttled_at_all_comes_before_the_filter_of_system_calls():
    bypass, seldom = "process.Speculation_Store_Bypass", {"wall_s": 9, "cgroup_nr_throttled": 1}
    slow = Side("runc", "runc", {"quota": 0.3}, {bypass: "mitigated"}, {**seldom, "cgroup_throttled_s": 0.01})
    found = examined(slow, Side("bare metal", "bare", {}, {bypass: "vulnerable"}, {"wall_s": 3}), {"steps": 1.0})

    assert next(iter(found.held)) == "cpu_quota"
    assert "seccomp" in found.held


def test_a_suspect_far_ahead_is_tried_alone_and_both_ways():
    sides = search(one=suspicion(0.9, A="1"), two=suspicion(0.3, B="1")).next()

    assert list(sides) == ["quick", "slow", without("one"), added("one")]
    assert sides[without("one")].fields == {"quota": 1.0, "env": {"A": None}}
    assert sides[added("one")] == Level("bare", {"env": {"A": "1"}})


def test_two_that_are_about_as_likely_are_tried_together():
    assert without("two") in search(one=suspicion(0.6, A="1"), two=suspicion(0.5, B="1")).next()


def test_who_costs_stays_removed_and_the_others_are_tried_once_more_without_it():
    wanted = search(one=suspicion(0.6, A="1"), two=suspicion(0.5, B="1"), three=suspicion(0.1, C="1"))
    wanted.next()
    wanted.learn({"one": "a part", "two": "not it"})

    assert wanted.base().fields["env"] == {"A": None}
    assert wanted.candidates() == ["two", "three"]
    wanted.learn({"two": "not it"})
    assert wanted.candidates() == ["three"]


def test_who_was_tried_before_a_large_cost_was_found_is_tried_once_more_without_it():
    wanted = search(one=suspicion(0.9, A="1"), two=suspicion(0.5, B="1"), three=suspicion(0.1, C="1"))
    wanted.learn({"one": "not it"})  # in a wave of its own, beside what two costs
    wanted.learn({"two": "a part", "three": "cannot tell"})

    assert wanted.candidates() == ["one", "three"]
    wanted.learn({"one": "a part"})
    assert wanted.candidates() == ["three"] and wanted.base().fields["env"] == {"B": None, "A": None}
    wanted.learn({"three": "cannot tell"})
    assert wanted.candidates() == []


def test_who_costs_but_cannot_be_left_out_stays():
    wanted = search(one=suspicion(0.9, A="1"), two=suspicion(0.5, B="1"))
    wanted.learn({"one": "a part"}, failing=["one"])

    assert wanted.base() == wanted.slow and wanted.candidates() == ["two"]


def test_two_costs_found_at_once_are_then_removed_together():
    wanted = search(one=suspicion(0.6, A="1"), two=suspicion(0.5, B="1"))
    wanted.learn({"one": "a part", "two": "a part"})

    assert not wanted.checked
    assert list(wanted.next()) == ["quick", "slow"]
    wanted.learn({})
    assert wanted.next() == {}


def test_arguments_of_a_side_are_merged_as_its_variables_are():
    level = Level("runc", {"arguments": {"--threads": "16", "--mode": "a"}})
    changed = level.changed({"arguments": {"--threads": "1"}, "quota": 1.0})

    assert changed.fields == {"quota": 1.0, "arguments": {"--threads": "1", "--mode": "a"}}
    assert changed.settings()["platform.arguments"] == {"--threads": "1", "--mode": "a"}
    assert Level.of(changed.settings()) == changed


def test_sides_of_two_stores_are_run_again_with_the_options_that_they_were_recorded_with():
    ours = Side("a", "runc", {}, {"command.words": ["app", "--threads", "16", "--port", "1"], "env.A": "1"})
    theirs = Side("b", "runc", {}, {"command.words": ["app", "--port", "2", "--mode", "a"], "variables": {}})
    slow, quick = with_recorded_variables(Level("runc", {}), Level("runc", {}), ours, theirs)

    assert slow.fields == {"env": {"A": "1"}}
    assert quick.fields == {"env": {"A": None}, "arguments": {"--mode": "a", "--threads": None}}


def test_sides_that_are_run_again_keep_their_own_places_and_what_no_record_has_the_value_of():
    unknown = "hmac:0a1b:0123456789abcdef"
    ours = Side("a", "runc", {}, {"variables": {"PATH": "/a", "PYTHONPATH": unknown, "APP": unknown, "A": "1"}})
    theirs = Side("b", "runc", {}, {"variables": {"PATH": "/b"}})
    slow, quick = with_recorded_variables(Level("runc", {}), Level("runc", {}), ours, theirs)

    assert (slow.fields, quick.fields) == ({"env": {"A": "1"}}, {"env": {"A": None}})


def files(*paths: str) -> Suspicion:
    found = exchanged(paths, "/app-1")
    assert found is not None
    return found


def two_images() -> Search:
    """Two images in the same container: all that the sides differ in is the image."""
    both = Suspicion(0.2, "seen.", {"image": "/app-1"}, None, "cure", bundle=True)
    return Search(Level("runc", {"image": "/app-2"}), Level("runc", {"image": "/app-1"}), {"software": both})


def test_files_that_differ_are_tried_in_halves_down_to_the_one_that_costs():
    wanted = two_images()
    wanted.narrow("software", files("/app/a.py", "/app/b.py", "/app/c.py", "/app/d.py"))

    sides = wanted.next()
    assert list(sides) == ["quick", "slow", without("software:1"), without("software:2")]
    taken = {"image": "/app-2", "taken": ["/app/a.py", "/app/b.py"], "taken_from": "/app-1"}
    assert sides[without("software:1")] == Level("runc", taken)
    wanted.learn({"software:1": "not it", "software:2": "located"})
    assert wanted.candidates() == ["software:/app/c.py", "software:/app/d.py"]
    wanted.learn({"software:/app/c.py": "not it", "software:/app/d.py": "the cause"})
    assert "software:all" not in wanted.candidates()
    assert wanted.located() == ["software"]


def test_a_half_with_which_the_program_fails_is_taken_apart_and_all_is_tried_where_no_half_costs():
    wanted = two_images()
    wanted.narrow("software", files("/app/a.py", "/app/b.py", "/app/c.py"))
    wanted.learn({"software:/app/a.py": "not it", "software:2": "does not run"})

    assert wanted.candidates() == ["software:/app/b.py", "software:/app/c.py"]
    wanted.learn({"software:/app/b.py": "does not run", "software:/app/c.py": "not it"})
    assert wanted.candidates() == ["software:all"]
    wanted.learn({"software:all": "located"})
    assert "either half alone" not in wanted.suspects["software:all"].evidence  # one of them could not be tried


def test_a_bundle_of_which_no_half_costs_alone_is_said_to_cost_together():
    wanted = two_images()
    wanted.narrow("software", files("/app/a.py", "/app/b.py"))
    wanted.learn({"software:/app/a.py": "not it", "software:/app/b.py": "not it"})

    assert wanted.candidates() == ["software:all"]
    wanted.learn({"software:all": "located"})
    assert wanted.candidates() == []
    assert wanted.suspects["software:all"].evidence.endswith("either half alone changes nothing.")


def test_a_single_file_that_differs_is_tried_by_its_name():
    wanted = two_images()
    wanted.narrow("software", files("/app/a.py"))

    assert wanted.candidates() == ["software:/app/a.py"] and wanted.bundles == {"software"}


def test_files_that_only_work_together_are_exchanged_together():
    packages, lib = "/usr/lib/python3/dist-packages", "/lib/x86_64-linux-gnu"
    many = [f"{packages}/large/{n}.py" for n in range(20)]
    compiled = "/app/__pycache__/a.cpython-311.pyc"
    many.append(f"{packages}/large.libs/libblas-0a1b.so")
    found = files(*many, f"{packages}/small/a.py", f"{lib}/libc.so.6", f"{lib}/libm.so.6", "/app/a.py", compiled)
    units, waiting = [], [found]
    while waiting:
        each = waiting.pop()
        waiting += each.parts
        units += [] if each.parts else [set((each.without or {})["taken"])]

    assert {f"{packages}/large", f"{packages}/large.libs"} in units and {f"{packages}/small/a.py"} in units
    assert {f"{lib}/libc.so.6", f"{lib}/libm.so.6"} in units and {"/app/a.py", compiled} in units
    assert exchanged([compiled], None) is None  # the source is the same, and it is for `bytecode` to look at
    assert len(units) == 4


def test_another_interpreter_is_exchanged_with_its_own_library():
    own = ["/usr/bin/python3.12", "/usr/lib/python3.12/json/decoder.py", "/usr/lib/python3.12/__pycache__/re.pyc"]
    library = "/usr/lib/python3.12/dist-packages/a.py"
    found = exchanged([*own, library], None)

    assert found is not None and [set(each.without["taken"]) for each in found.parts] == [set(own), {library}]
    assert [each.without["taken"] for each in exchanged(["/usr/lib/python3.12/re.py", "/a.py"], None).parts] == [
        ["/usr/lib/python3.12/re.py"],
        ["/a.py"],
    ]


def test_files_that_are_too_many_to_exchange_are_counted():
    many = ["/usr/bin/python3.12", *(f"/app/{n}.py" for n in range(99))]

    assert exchanged(many, None) is None
    assert untaken_text(many) == (
        "Files that the runs touched and that differ: 100, among them the interpreter; they were not exchanged."
    )


def test_the_file_of_a_function_that_takes_longer_is_tried_first_and_alone():
    found = exchanged(["/app/a.py", "/app/b.py", "/app/parts/c.py"], None, ["parts/c.py"])

    assert found is not None and found.parts[0].without == {"taken": ["/app/parts/c.py"], "taken_from": None}


def test_a_field_that_a_record_has_without_a_value_takes_the_files_of_a_suspect() -> None:
    level = Level("docker", {"image": "app:2", "hidden": None})
    assert level.changed({"hidden": ["/a.pth"]}).fields["hidden"] == ["/a.pth"]
