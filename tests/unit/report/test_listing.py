from __future__ import annotations

from dataclasses import replace

import some_weighings as some
from some_records import because
from tare.report.html import render
from tare.report.text.trials import flat_pairs, record_text, records_lines, records_table, varied_settings


def test_a_table_of_records_shows_what_sets_them_apart_and_their_first_figures() -> None:
    first, second, third = some.records()[:3]
    other_batch = replace(third, settings={**third.settings, "workload.batch": 64})
    failed = replace(second, state="failed", metrics={})
    assert records_table([first, failed, other_batch], width=100).splitlines() == [
        "trial     block  platform           batch  state   median step  whole run  CPU time",
        "5feceb66      0  bare (A/A repeat)     16  ok          1.83 ms     4.19 s    3.09 s",
        "6b86b273      0  bare                  16  failed",
        "d4735e3a      0  docker                64  ok          1.86 ms     4.25 s    3.13 s",
    ]


def test_an_empty_store_is_said_to_be_empty() -> None:
    assert records_table([]) == "no trials yet"


def test_probes_are_not_a_factor() -> None:
    first, second = some.records()[:2]
    assert varied_settings([first, replace(second, settings={**second.settings, "probes": "cpu"})]) == ["platform"]


def test_one_record_is_told_in_full_and_an_empty_section_is_left_out() -> None:
    suspect = next(record for record in some.records() if record.state == "suspect")
    text = record_text(replace(suspect, notes=(because("a note", "note"),)), 60)
    assert text.splitlines()[0] == f"trial {suspect.trial}, attempt 0: suspect"
    assert "because: Something else used 3 % of the CPU." in text
    assert "note: a note" in text
    for said in ("median step", "open", "workload.batch", "inside.torch.version", "device.memory_bytes", "23.3 GiB"):
        assert said in text
    assert "phases" not in record_text(replace(suspect, phases={}))


def test_a_fact_that_is_absent_is_none_and_never_zero() -> None:
    assert flat_pairs({"cpu": {"governor": None, "boost": False}, "loads": [1, None]}) == [
        ("cpu.governor", "none"),
        ("cpu.boost", "no"),
        ("loads", "1, none"),
    ]


def test_where_all_trials_are_suspect_for_one_reason_it_stands_once() -> None:
    doubted = [
        replace(each, state="suspect", reasons=(because(f"other processes used {n} %.", "suspect"),))
        for n, each in enumerate(some.records()[:6])
    ]
    text = records_table(doubted, 100)
    assert text.count("other processes used") == 1
    assert text.splitlines()[-1] == "all 6 trials suspect: other processes used 0 %. (of 5feceb66)"


def test_for_programs_every_trial_is_one_line_with_its_reason_and_nothing_is_cut() -> None:
    records = [
        replace(each, settings={**each.settings, "workload.argv": ["x" * 90, str(n)]}, state="failed", metrics={},
                reasons=(because("it failed " + "very " * 30),))
        for n, each in enumerate(some.records()[:4])
    ]  # fmt: skip
    lines = records_lines(records).splitlines()
    assert len(lines) == 1 + len(records)
    assert all(line.endswith("very") for line in lines[1:])
    assert "…" not in "".join(lines)


def test_on_the_page_a_reason_of_several_trials_stands_once_with_their_number() -> None:
    sample = some.normal()
    because_of = "the workload ended with code 1: no such file."
    failed = [replace(each, state="failed", reasons=(because(because_of),)) for each in sample.records[:3]]

    page = render(sample.weighing, [*failed, *sample.records[3:]], some.GENERATED)
    table = page[page.index('<table class="trials">') :].partition("</table>")[0]

    assert table.count(because_of) == 1
    assert f"{because_of} (3 trials)" in table
    assert table.count(f"as {failed[0].trial[:8]}") + table.count(f"as {failed[1].trial[:8]}") == 2
