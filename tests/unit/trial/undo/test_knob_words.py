from __future__ import annotations

from tare.trial.undo.knob import apart, show, strange

MODE = {"cores.cpu1": "1", "gpu": {"max": 900, "min": 100}, "fan": "off"}


def test_a_state_is_words_and_not_json():
    assert show(MODE) == "cores.cpu1 1, gpu.max 900, gpu.min 100, fan off"
    assert [show("old"), show([0, 1]), show([]), show({}), show(12)] == ["old", "0, 1", "none", "nothing", "12"]


def test_a_long_state_is_cut():
    assert len(show({f"setting {number}": number for number in range(100)})) <= 201


def test_of_two_states_only_what_differs_is_told():
    assert apart(MODE, {**MODE, "gpu": {"max": 500, "min": 100}}) == ["gpu.max 900", "gpu.max 500"]
    assert apart("old", "new") == ["old", "new"]


def test_many_differences_are_counted():
    (first, _) = apart({str(n): 0 for n in range(9)}, {str(n): 1 for n in range(9)})
    assert first == "0 0, 1 0, 2 0, 3 0 and 5 settings more"


def test_what_someone_else_set_is_told_from_what_was_found_and_what_we_set():
    found, ours, now = ({"a": was, "b": "x"} for was in ("1", "2", "3"))
    assert strange(found, [ours], {**now, "b": "x"}) == ("a 1", "a 2", "a 3")
    assert strange("old", ["new"], "theirs") == ("old", "new", "theirs")
