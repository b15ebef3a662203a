"""Variables as causes: any that differs, in halves that are tried, and no value that may be a secret."""

from __future__ import annotations

from typing import Any

from tare.base.secrets import digest, shown_env
from tare.parts.causes.variables import DebugVariables, OtherVariables
from tare.parts.protocols import NotLooked, RuledOut, Side, Suspicion
from tare.plan.why import Level, Search, without


def side(name: str = "docker", fields: dict[str, Any] | None = None, **env: str) -> Side:
    return Side(name, "docker", fields or {}, {"variables": shown_env(env)})


def suspected(slow: Side, quick: Side) -> Suspicion:
    found = OtherVariables().examine(slow, quick)
    assert isinstance(found, Suspicion), found
    return found


def test_any_variable_that_differs_is_suspected_and_what_tells_a_secret_is_not_in_the_words():
    url = "postgres://ada:CANARY@db/app"
    found = suspected(side(DATABASE_URL=url, LOGLEVEL="DEBUG"), side(LOGLEVEL="WARNING"))

    assert "LOGLEVEL=DEBUG" in found.evidence and "DATABASE_URL (" in found.evidence
    assert "CANARY" not in str(found)
    assert found.without == {"env": {"LOGLEVEL": "WARNING", "DATABASE_URL": None}}
    assert found.added == {"env": {"LOGLEVEL": "DEBUG", "DATABASE_URL": digest(url)}}
    assert suspected(side(), side(DATABASE_URL=url)).cure == "-e DATABASE_URL=VALUE"


def test_several_are_a_bundle_whose_likelier_half_comes_first():
    slow = side(A="1", XLA_FLAGS="2", TERM="3", GOMAXPROCS="1")
    found = suspected(slow, side())

    assert found.bundle and not suspected(side(A="1"), side()).bundle
    assert [list(half.without["env"]) for half in found.parts] == [["GOMAXPROCS", "XLA_FLAGS"], ["A", "TERM"]]
    assert [half.weight for half in found.parts] == [0.6, 0.35]


def test_without_a_record_of_all_variables_nothing_is_ruled_out_and_with_both_it_is():
    older = Side("docker", "docker", {}, {"kernel": "6.1", "env.OMP_NUM_THREADS": "2"})

    assert isinstance(OtherVariables().examine(older, side()), NotLooked)
    assert isinstance(OtherVariables().examine(side(A="1"), side(A="1")), RuledOut)
    assert isinstance(DebugVariables().examine(side(), side()), RuledOut)


def test_digests_with_the_keys_of_two_machines_are_not_compared(tmp_path, monkeypatch):
    here = side(APP="some words")
    monkeypatch.setenv("TARE_STATE", str(tmp_path))
    found = OtherVariables().examine(here, side(APP="some words"))

    assert isinstance(found, NotLooked) and "two machines" in found.reason


def search(found: Suspicion) -> Search:
    return Search(Level("runc", {"quota": 1.0}), Level("bare", {}), {"other_variables": found})


def test_a_bundle_that_costs_is_halved_until_one_variable_is_left():
    wanted = search(suspected(side(A="1", B="1", C="1", LOGLEVEL="DEBUG"), side()))
    asked = []
    while sides := wanted.next():
        names = [name for name in wanted.candidates() if without(name) in sides]
        guilty = {name: "LOGLEVEL" in wanted.suspects[name].without["env"] for name in names}
        asked += names
        wanted.learn(
            {
                name: "not it" if not guilty[name] else "located" if wanted.suspects[name].bundle else "the cause"
                for name in names
            }
        )
        if "the cause" in [*guilty.values()] or wanted.removed:
            break

    assert wanted.removed == ["other_variables:LOGLEVEL"]
    assert asked[0] == "other_variables" and len(asked) == 5  # it, two halves, and two of one
    assert wanted.base().fields["env"] == {"LOGLEVEL": None}


def test_all_that_two_sides_differ_in_is_halved_without_a_trial():
    found = suspected(side(A="1", B="1"), side())
    slow = Level("runc", {"env": {"A": "1", "B": "1"}})
    wanted = Search(slow, Level("runc", {"env": {"A": None, "B": None}}), {"other_variables": found})

    assert wanted.candidates() == ["other_variables:A", "other_variables:B"]


UNKNOWN = "hmac:0a1b:0123456789abcdef"  # of another process, whose values are in no record


def test_a_variable_whose_value_was_not_kept_is_suspected_and_not_tried():
    found = suspected(side(fields={"env": {"APP": UNKNOWN}}), side())

    assert (found.without, found.added) == (None, None)
    assert found.untried == "of APP a digest alone was kept, and not the value."
    assert not search(found).candidates()

    among = suspected(side(fields={"env": {"APP": UNKNOWN}}, LOGLEVEL="DEBUG"), side())
    assert among.without == {"env": {"LOGLEVEL": None}} and not among.bundle
    assert among.evidence.endswith("Not tried: of APP a digest alone was kept, and not the value.")
