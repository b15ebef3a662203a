"""Whatever stands in a file, the loader answers with a study or a `StudyError`, quickly, and runs nothing."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stand_in_parts import stand_ins
from tare.base.errors import StudyError
from tare.studies.load import from_plain, loads
from tare.studies.model import Study

KEYS = ["study", "about", "platform", "workload", "control", "probes", "repeat", "order", "compare", "exclude", "aa"]
WORDS = [
    *KEYS, "limit", "period", "bare", "docker", "qemu", "torch_train", "command", "null", "batch", "argv", "page_cache",
    "cold", "min", "max", "until", "by", "against", "platform.cpus", "workload.batch", "control.page_cache", "+",
    "012", "1e999", ".nan", "-.inf", "1:30", "no", "~", "2 GiB", "10 min", "5%", "-1", "0", "16", "''", '"\\x00"',
    '"\\ud800"', "!!python/object/apply:os.system", "!x", "&a", "*a", "<<", "|", ">", "%YAML 1.1", "---", "...", "#",
]  # fmt: skip
MARKS = [": ", ":\n  ", ", ", *"[]{} ?'\t\n\0\ufeff", '"', "\n  ", "\n- ", "? ", "\r\n"]
SCRAPS = st.lists(st.sampled_from(WORDS + MARKS), max_size=40).map("".join)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=15,
)


@contextmanager
def nothing_runs() -> Iterator[None]:
    """Whoever starts a process, evaluates or opens something in here fails the test."""

    def caught(*given: Any, **more: Any) -> NoReturn:
        raise AssertionError(f"the loader tried to run {given!r}")

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (os, "system"), (os, "popen"), (os, "execv"), (os, "execve"), (os, "fork"), (os, "posix_spawn"),
            (subprocess, "Popen"), (builtins, "eval"), (builtins, "open"),
        ):  # fmt: skip
            patch.setattr(owner, name, caught)
        yield


def answer(text: str | bytes) -> Study | None:
    start = time.process_time()
    with stand_ins(), nothing_runs():
        try:
            found: Study | None = loads(text, "f.yaml")
        except StudyError as error:
            assert str(error).startswith("f.yaml:")
            found = None
    assert time.process_time() - start < 50  # a second is usual on a loaded machine: the collector runs too
    return found


@given(st.text(max_size=300))
@settings(max_examples=150)
def test_any_text_gets_an_answer(text: str) -> None:
    answer(text)


@given(st.binary(max_size=300))
@settings(max_examples=150)
def test_any_bytes_get_an_answer(data: bytes) -> None:
    answer(data)


@given(SCRAPS)
@settings(max_examples=200)
def test_scraps_of_a_study_get_an_answer(text: str) -> None:
    answer(text)


@given(st.dictionaries(st.sampled_from([*KEYS, "limit", "period"]), PLAIN, max_size=8))
@settings(max_examples=200)
def test_any_values_under_the_right_keys_get_an_answer(data: dict[str, Any]) -> None:
    whole = {"study": "s", "platform": "bare", "workload": "torch_train"} | data

    answer(json.dumps(whole, allow_nan=False) if _finite(whole) else "a: 1")
    with stand_ins():
        try:
            found = from_plain(whole, "weigh")
        except StudyError:
            return
        assert Study.model_validate(json.loads(json.dumps(found.as_plain(), allow_nan=False))) == found


def _finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


@given(
    st.fixed_dictionaries(
        {"study": st.just("s"), "platform": st.just("bare"), "workload": st.just("torch_train")},
        optional={"about": st.text(max_size=50), "limit": st.integers(1, 100).map(lambda n: f"{n} min")},
    )
)
@settings(max_examples=100)
def test_a_good_study_written_as_json_is_a_good_study(data: dict[str, Any]) -> None:
    # JSON is YAML 1.2, but for the characters that a text file should not hold.
    assert answer(json.dumps(data)) is not None or "\\u0000" in json.dumps(data) or "\\ud" in json.dumps(data)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{here}: &{here} [{', '.join([f'*{before}'] * 2)}]\n"
    for before, here in zip("abcdefghij", "bcdefghijk", strict=True)
)
WORST = {
    "a bomb of aliases": BOMB,
    "words": "about: " + "x " * 65_000,
    "tags": "!" * 130_000,
    "values": "platform: [" + "1, " * 43_000 + "]",
    "unknown platforms": "platform: [" + ", ".join(f"p{n}" for n in range(4_900)) + "]",
    "wrong levels": "workload: {torch_train: {batch: [" + "x, " * 4_900 + "]}}",
    "deep lists": "[" * 130_000,
    "deep mappings": "{a: " * 32_000,
    "lines": "a: |\n" + "  x\n" * 32_000,
    "long and many": "workload: {command: {argv: [" + "a, " * 2_400 + "], cwd: [" + "a, " * 2_400 + "]}}",
    "ten megabytes": "x" * 10_000_000,
}


@pytest.mark.parametrize("what", WORST)
def test_the_worst_texts_are_answered_with_little_work(what: str) -> None:
    # A second of CPU time on a slow core. Work that grows with the square of these lengths takes minutes.
    start = time.process_time()
    with stand_ins(), pytest.raises(StudyError):
        loads(WORST[what], "f.yaml")
    assert time.process_time() - start < 60


@pytest.mark.parametrize("what", ["a bomb of aliases", "values", "ten megabytes"])
def test_the_largest_texts_take_little_memory(what: str) -> None:
    tracemalloc.start()
    try:
        with stand_ins(), pytest.raises(StudyError):
            loads(WORST[what], "f.yaml")
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
