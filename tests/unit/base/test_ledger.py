"""What a run's time went to, and what grew."""

import pytest

from tare.base.ledger import growth, ledger


def test_every_second_of_one_thread_is_in_one_entry():
    counted = {
        "wall_s": 10.0, "cpu_s": 4.0, "cpu_system_s": 1.0, "run_queue_s": 3.5,
        "cgroup_throttled_s": 6.0, "cgroup_nr_throttled": 25.0,
    }  # fmt: skip
    found = ledger(counted)

    assert found == {"user": 3.0, "system": 1.0, "queue": 1.0, "throttled": 2.5, "wait": 2.5}
    assert sum(found.values()) == pytest.approx(counted["wall_s"])


def test_what_was_not_counted_is_no_entry():
    assert ledger({"wall_s": 2.0, "cpu_s": 1.5}) == {"cpu": 1.5, "off": 0.5}  # some of it may be for a core
    assert ledger({"wall_s": 2.0}) == {}
    assert ledger({"wall_s": 2.0, "cpu_s": 7.5}) == {"cpu": 7.5}  # of several threads


def test_what_grew_is_told_by_its_share_of_entries_that_both_have():
    slow, quick = {"user": 3.0, "system": 3.0, "queue": 1.0}, {"user": 2.0, "system": 0.0, "wait": 1.0}

    assert growth(slow, quick, 4.0) == {"user": 0.25, "system": 0.75}
    assert growth(quick, slow, -4.0) == {}


def test_of_several_threads_a_tiny_entry_is_not_all_that_a_run_took_longer():
    quick = {"wall_s": 2.0, "cpu_s": 7.5, "cpu_system_s": 0.5}
    slow = {"wall_s": 4.0, "cpu_s": 7.502, "cpu_system_s": 0.502}
    found = growth(ledger(slow), ledger(quick), slow["wall_s"] - quick["wall_s"])

    assert found == {"user": pytest.approx(0.0), "system": pytest.approx(0.001)}
