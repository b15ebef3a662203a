from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tare.base import rulings
from tare.base.errors import TareError
from tare.base.rulings import CODES, LEGACY, Ruling, obstacle, probe_note, read_ruling, read_rulings


def test_a_code_that_is_not_declared_cannot_be_used():
    with pytest.raises(ValueError, match=re.escape("'cpu.stolen' is not a code")):
        Ruling("cpu.stolen", "invalid", "cpu", "the hypervisor took CPU time away.")


def test_a_weight_is_one_of_five():
    with pytest.raises(ValueError, match="'fatal' is not a weight"):
        Ruling("cpu.steal", "fatal", "cpu", "the hypervisor took CPU time away.")  # type: ignore[arg-type]


def test_codes_are_short_and_each_has_a_meaning():
    assert all(re.fullmatch(r"[a-z-]+(\.[a-z-]+)?", code) and len(code) <= 32 for code in CODES)
    assert all(meaning and not meaning.endswith(".") for meaning in CODES.values())


def test_its_text_is_its_sentence():
    assert f"{Ruling('cpu.steal', 'suspect', 'cpu', 'steal.')}" == "steal."


def test_whoever_knows_the_subject_names_it_first():
    assert probe_note("probe.slow", "perf", "took 3 s to read.") == Ruling(
        "probe.slow", "note", "perf", "perf: took 3 s to read."
    )


def test_it_comes_back_from_json_as_it_was():
    ruling = Ruling("cpu.steal", "suspect", "cpu", "the hypervisor took 3.0% of the CPU time away (steal).")
    assert ruling.as_json() == {
        "code": "cpu.steal",
        "weight": "suspect",
        "subject": "cpu",
        "sentence": "the hypervisor took 3.0% of the CPU time away (steal).",
    }
    assert read_ruling(ruling.as_json(), "note") == ruling


def test_a_sentence_of_an_old_store_is_shown_and_not_interpreted():
    (found,) = read_rulings(["gpu: GPU 0 is lost: it no longer answers its driver."], "invalid")
    assert (found.code, found.weight, found.subject) == (LEGACY, "invalid", "")
    assert str(found) == "gpu: GPU 0 is lost: it no longer answers its driver."


def test_a_code_of_another_version_is_kept_as_it_is():
    data = {"code": "npu.lost", "weight": "invalid", "subject": "npu0", "sentence": "the NPU is lost."}
    assert read_ruling(data, "note").as_json() == data


@pytest.mark.parametrize(
    "data", [3, None, ["x"], {"code": "cpu.steal"}, {"code": "a", "weight": "b", "subject": "c", "sentence": "d"}]
)
def test_anything_else_is_no_ruling(data):
    with pytest.raises(ValueError, match=r"is neither a sentence|is not a weight"):
        read_ruling(data, "note")


def all_of(kind: type[TareError]) -> list[type[TareError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in all_of(child))]


def test_every_error_that_may_end_a_trial_has_a_code():
    assert {kind.code for kind in all_of(TareError)} <= CODES.keys()


def test_an_obstacle_stops_what_it_is_about():
    assert obstacle("platform.emulated", "no KVM.").about("platform qemu").weight == "obstacle"


MAKERS = {"Ruling", "obstacle", "probe_note"}
LOOKS_INTO = {"startswith", "endswith", "partition", "rpartition", "split", "find", "index", "count", "removeprefix"}


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Of every file of tare: only where one of these tests runs, not in every worker that collects them."""
    files = sorted(Path(rulings.__file__).parents[1].rglob("*.py"))
    return [(path, node) for path in files for node in ast.walk(ast.parse(path.read_text()))]


def test_every_code_is_declared_and_every_declared_code_is_used():
    made = {
        node.args[0].value
        for _, node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS
        if node.args and isinstance(node.args[0], ast.Constant)
    }
    assert made <= CODES.keys()
    written = {
        node.value
        for path, node in nodes()
        if path.name != "rulings.py" and isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert CODES.keys() - written == {LEGACY}


def looks_into_a_sentence(node: ast.AST) -> bool:
    """`x.sentence.startswith(...)`, `"..." in x.sentence`."""
    if isinstance(node, ast.Attribute) and node.attr in LOOKS_INTO:
        return isinstance(node.value, ast.Attribute) and node.value.attr == "sentence"
    if isinstance(node, ast.Compare) and any(isinstance(each, ast.In | ast.NotIn) for each in node.ops):
        return any(isinstance(each, ast.Attribute) and each.attr == "sentence" for each in node.comparators)
    return False


def test_nobody_looks_into_a_sentence():
    found = [
        f"{path}:{node.lineno}"  # type: ignore[attr-defined]
        for path, node in nodes()
        if looks_into_a_sentence(node)
    ]
    assert found == []
    caught = ast.parse("a.sentence.startswith('x')\n'x' not in b.sentence")
    assert sum(map(looks_into_a_sentence, ast.walk(caught))) == 2
