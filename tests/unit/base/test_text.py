from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.base.command_words import options_in, why_not_settable, with_options
from tare.base.text import (
    count_text,
    cpu_text,
    duration_text,
    effect_text,
    failure_line,
    interval_text,
    metric_name,
    printed_text,
    quantity_text,
    quantity_texts,
    safe_text,
    say,
    share_text,
    size_text,
    telling_lines,
    time_text,
    unit_of,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00184, "1.84 ms"),
        (0.0009996, "1.00 ms"),
        (0.000000231, "231 ns"),
        (0.184, "184 ms"),
        (59.94, "59.9 s"),
        (599.9, "10.0 min"),
        (8000, "2.22 h"),
        (0, "0 s"),
        (-0.00184, "-1.84 ms"),
        (float("nan"), "not a number"),
    ],
)
def test_a_time_has_three_digits_and_the_unit_that_people_read(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("metric", "values", "texts"),
    [
        ("step_s", [0.00184, 0.00187], ["1.84 ms", "1.87 ms"]),
        ("step_s", [0.00095, 0.00105], ["0.95 ms", "1.05 ms"]),
        ("step_s", [0.000005, 0.003], ["0.0050 ms", "3.0000 ms"]),
        ("minor_faults", [38, 416_029], ["38", "416,029"]),
        ("max_rss_bytes", [12, 1000], ["12 B", "1,000 B"]),
        ("images_per_s", [1520.4, 1498.2], ["1,520", "1,498"]),
        ("value", [0.00123, 0.0013], ["0.00123", "0.00130"]),
    ],
)
def test_two_values_side_by_side_share_unit_and_precision(metric: str, values: list[float], texts: list[str]) -> None:
    assert quantity_texts(metric, values) == texts


def test_a_shared_unit_never_shows_a_small_value_as_nothing() -> None:
    assert quantity_texts("open_s", [0.0004, 4.21]) == ["400 µs", "4.21 s"]


@given(st.lists(st.floats(min_value=1e-12, max_value=1e12), min_size=1, max_size=4))
def test_what_is_not_zero_is_never_shown_as_zero(values: list[float]) -> None:
    for text in quantity_texts("step_s", values):
        assert any(digit in text for digit in "123456789")


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("power_w", 15.3, "15.3 W"),
        ("energy_j", 15_300, "15.3 kJ"),
        ("clock_hz", 1.5e9, "1.50 GHz"),
        ("busy_share", 0.123, "12.3 %"),
        ("temperature_c", 41.24, "41.2 °C"),
        ("late_ns", 1840, "1.84 µs"),
    ],
)
def test_the_unit_is_the_end_of_a_metric_s_name(metric: str, value: float, text: str) -> None:
    assert quantity_text(metric, value) == text


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("overhead_mean_s", -2.89e-20, "0 s"),
        ("overhead_mean_s", 2.89e-12, "0.00289 ns"),
        ("power_w", 1e-12, "0 W"),
        ("loss", 1e-12, "0.00000000000100"),
    ],
)
def test_what_a_subtraction_of_floats_left_is_nothing(metric: str, value: float, text: str) -> None:
    assert quantity_text(metric, value) == text


def test_nothing_beside_something_has_its_unit() -> None:
    assert quantity_texts("overhead_s", [-2.89e-20, 0.00184]) == ["0.00 ms", "1.84 ms"]


def test_sizes_are_in_powers_of_two() -> None:
    assert [size_text(size) for size in (3_250_585, 512, 1024**3)] == ["3.10 MiB", "512 B", "1.00 GiB"]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.016, "+1.6 %"), (-0.004, "-0.4 %"), (0.0003, "+0.03 %"), (1.234, "+123 %"), (0.0, "0.0 %"), (-1e-7, "0.00 %")],
)
def test_an_effect_has_a_sign_and_one_decimal(share: float, text: str) -> None:
    assert effect_text(share) == text


def test_an_effect_and_its_interval_have_the_same_precision() -> None:
    assert interval_text(0.004, 0.029) == "[+0.4, +2.9]"
    assert (effect_text(0.9, beside=(0.5, 1.7)), interval_text(0.5, 1.7, beside=(0.9,))) == ("+90 %", "[+50, +170]")


@pytest.mark.parametrize(
    ("share", "text"), [(0.05, "5 %"), (0.025, "2.5 %"), (0.0093, "0.9 %"), (0.0123456, "1.2 %"), (1.5, "150 %")]
)
def test_a_share_is_as_short_as_it_can_be(share: float, text: str) -> None:
    assert share_text(share) == text


def test_metrics_have_names_for_people() -> None:
    asked = ["step_s", "cpu_s", "stall_s", "epoch0_step_s", "minor_faults", "cgroup.throttled_s", "images_per_s"]
    told = ["median step", "CPU time", "fetch stall", "median step, first epoch", "minor faults", "cgroup throttled"]
    assert [metric_name(metric) for metric in asked] == [*told, "images per s"]


def test_waits_and_counts_are_told_as_people_say_them() -> None:
    assert [duration_text(s) for s in (0.4, 45, 100, 7500)] == ["0 s", "45 s", "1 min 40 s", "2 h 05 min"]
    assert [count_text(n, "trial") for n in (0, 1, 1200)] == ["0 trials", "1 trial", "1,200 trials"]


def test_signs_that_steer_a_terminal_or_hide_are_written_out() -> None:
    assert safe_text("a\x1b[31m\n\u202e\ud800\u2028\x9b") == "a\\x1b[31m\\n\\u202e\\ud800\\u2028\\x9b"
    assert safe_text("naïve 测试 ✓") == "naïve 测试 ✓"


TORCHRUN = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 89, in <module>
[rank0]: FileNotFoundError: no data/train.bin
[rank1]: Traceback (most recent call last):
[rank1]: FileNotFoundError: no data/train.bin
W1116 23:10:02.179000 22867 torch/distributed/elastic/multiprocessing/api.py:1010] Sending process 25146 SIGTERM
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
"""


def test_the_lines_that_say_why_end_before_a_launchers_own_report() -> None:
    assert telling_lines(TORCHRUN)[1:] == [
        '[rank0]:   File "train.py", line 89, in <module>',
        "[rank0]: FileNotFoundError: no data/train.bin",
    ]
    assert telling_lines(TORCHRUN.replace("[rank0]: ", "").replace("[rank1]: ", ""))[-1] == (
        "FileNotFoundError: no data/train.bin"
    )
    assert telling_lines("one\n\nwhy\n=====\n---\n") == ["one", "why"]
    assert telling_lines("ChildFailedError\n====\n") == ["ChildFailedError"]
    assert telling_lines("") == []


def test_a_printed_line_is_what_a_terminal_would_have_shown() -> None:
    assert printed_text("Epoch 1\tLoss 2\r\n") == "Epoch 1 Loss 2"
    assert printed_text(" 5%|#\r10%|##\r") == "10%|##"
    assert printed_text("\x1b[1;31mred\x1b[0m \x1b[2Kdone") == "red done"


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_safe_text_can_always_be_printed_and_never_steers(text: str) -> None:
    shown = safe_text(text)
    shown.encode("utf-8")
    assert not any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in shown)


def test_options_of_a_command_line_are_found_with_their_values():
    words = ["python", "-m", "app", "--threads=4", "--port", "8000", "--verbose", "--seed", "-1"]
    assert options_in(words) == {"-m": "app", "--threads": "4", "--port": "8000", "--seed": "-1"}
    assert options_in([]) == {}


def test_options_of_a_command_line_are_replaced_in_their_place_taken_away_or_added():
    words = ["app", "--threads=4", "--port", "8000", "in.txt", "--quiet"]
    assert with_options(words, {"--threads": "1", "--port": "9"}) == (
        "app", "--threads=1", "--port", "9", "in.txt", "--quiet",
    )  # fmt: skip
    assert with_options(words, {"--threads": None, "--port": None}) == ("app", "in.txt", "--quiet")
    assert with_options(words, {"--mode": "a", "--none": None}) == (*words, "--mode", "a")


def test_options_in_the_text_of_a_shell_are_found_and_replaced_where_it_is_one_command():
    words = ("/bin/bash", "-ec", "OMP_NUM_THREADS=1 serve --threads 4 'a b.txt'")
    assert options_in(words) == {"--threads": "4"}
    assert with_options(words, {"--threads": "1", "--mode": "x"}) == (
        "/bin/bash", "-ec", "OMP_NUM_THREADS=1 serve --threads 1 'a b.txt' --mode x",
    )  # fmt: skip
    assert why_not_settable(words, {"--threads": "1"}) is None
    for text in ("cd /app && serve --threads 4", "serve --threads $N", "serve --threads 4 > log"):
        assert "more than one plain command" in (why_not_settable(("sh", "-c", text), {"--threads": "1"}) or "")
    assert options_in(("python", "-c", "print(1)", "--threads", "4"))["--threads"] == "4"  # no shell


def test_an_option_that_stands_twice_cannot_be_given_one_value_but_be_taken_away():
    words = ("serve", "--model", "a", "--model=b", "--threads", "4")
    assert "--model stands 2 times" in (why_not_settable(words, {"--model": "c"}) or "")
    assert why_not_settable(words, {"--model": None, "--threads": "1"}) is None
    assert with_options(words, {"--model": None}) == ("serve", "--threads", "4")


@pytest.mark.parametrize(
    ("workloads", "metric", "name"),
    [
        (["server"], "step_mean_s", "mean latency"),
        (["server", "server"], "step_p99_s", "latency, 99th percentile"),
        (["server"], "cpu_step_s", "CPU time per request"),
        (["server"], "startup_s", "start-up to the first request"),
        (["generate"], "step_mean_s", "mean time per output token"),
        (["generate"], "epoch0_step_s", "median time per output token, warm-up"),
        (["generate"], "energy_step_j", "energy per decode step"),
        (["generate"], "energy_token_j", "energy per token"),
        (["torch_train"], "step_mean_s", "mean step"),
        (["torch_train", "server"], "step_mean_s", "mean step"),  # no one word for both
        (["finetune"], "optimiser_s", "optimiser step"),
        ([], "step_s", "median step"),
    ],
)
def test_a_step_is_called_what_it_is_in_its_workload(workloads: list[str], metric: str, name: str) -> None:
    assert metric_name(metric, unit_of(workloads)) == name


def test_a_processor_that_the_kernel_tells_by_numbers_has_a_name():
    told = {"0x41 part 0xd0c": "Neoverse-N1", "0x41 part 0xd42": "Cortex-A78AE", "0x4e part 0x004": "NVIDIA Carmel"}
    told |= {"0x41 part 0xfff": "Arm part 0xfff", "0x99 part 0x001": "implementer 0x99 part 0x001"}
    assert {cpu: cpu_text(f"implementer {cpu}") for cpu in told} == told
    assert cpu_text("AMD EPYC 7B13") == "AMD EPYC 7B13"


def test_messages_wrap_to_a_known_width_and_stay_whole_in_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "other processes use 87 % of this device: above 25 % a trial is invalid.\n  bare: " + "1.84 s, " * 12
    monkeypatch.setenv("COLUMNS", "50")
    say(message)
    assert capsys.readouterr().err == f"{message}\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    say(message)
    first, second, *others = capsys.readouterr().err.splitlines()
    assert first == "other processes use 87 % of this device: above"
    assert second == "  25 % a trial is invalid."
    assert all(len(line) <= 50 for line in others)
    assert [line[: len(line) - len(line.lstrip())] for line in others] == ["  ", "    ", "    "]
    assert all(not line.endswith("1.84") for line in others)


def test_a_failure_is_told_by_the_exception_of_the_last_traceback_and_not_by_the_end_of_its_message():
    first = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n'
    assert (
        failure_line(f"hello\n{first}RuntimeError: driver is old\nsecond line\n  third\n")
        == "RuntimeError: driver is old"
    )
    caught = f"{first}RuntimeError: Caught KeyError in worker 0.\nOriginal {first}KeyError: 'x'\n"
    assert failure_line(caught) == "KeyError: 'x'"
    assert failure_line("one\nlast words\n") == "last words"
    assert failure_line("") == ""
