"""Training loops of tests/unit/inside/scripts/own_times.py: what was marked of them, compared with their own clocks."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from tare_inside import marks

ENDS = (
    "mnist",
    "by_hand_without_zero_grad",
    "by_hand_with_a_loader",
    "dcgan",
    "nanogpt",
    "closure",
    "lbfgs",
    "sharpness_aware",
    "checkpointed",
    "timm",
    "ultralytics",
    "ultralytics_early",
    "compiled",
)
BEGINS = ("word_language_model", "with_an_optimiser")  # their clock is read where a step begins
TOLD_BY = dict.fromkeys(("word_language_model", "by_hand_without_zero_grad", "by_hand_with_a_loader"), "backward")
LOADED = ("mnist", "dcgan", "timm", "ultralytics", "ultralytics_early")  # each step waits for a batch
TESTED = ("mnist", "timm", "ultralytics", "ultralytics_early")  # after each run of steps
PARTS = ("fetch", "forward", "backward", "optimiser")

Spans = dict[str, list[tuple[int, int, int]]]


def spans(workdir: Path) -> Spans:
    """(step, begin, end) of each interval, by name."""
    rows, lost = marks.load(str(workdir / "marks.bin"))
    assert lost == 0
    begun: dict[tuple[str, int], int] = {}
    found: Spans = {}
    for t_ns, name, edge, step in rows:
        if edge == "begin":
            begun[name, step] = t_ns
        elif edge == "end":
            found.setdefault(name, []).append((step, begun[name, step], t_ns))
    return found


def check_own_times(marked: Spans, own: dict[str, Any], ends: bool) -> None:
    """In a run of steps each begins where the one before it ended, and there the script read its own clock.

    The order of the readings is compared, and not how far they are apart: a process that loses the CPU between two of
    them keeps the order. So nothing else may have been marked between the script's reading and ours.
    """
    times_ns = {t_ns for name in ("step", "evaluate", *PARTS) for _, *both in marked.get(name, ()) for t_ns in both}
    steps = iter(marked["step"])
    for run in own["runs"]:
        before_ns = None
        for own_ns, (step, begin_ns, end_ns) in zip(run, steps, strict=False):
            assert before_ns in (None, begin_ns), f"step {step} does not follow the one before it"
            first_ns, last_ns = sorted((own_ns, end_ns if ends else begin_ns))
            assert not any(first_ns < t_ns < last_ns for t_ns in times_ns), f"step {step} is not the script's own"
            before_ns = end_ns


def check_parts(found: Spans, first_unseen: bool = False) -> None:
    """Parts lie in their step, one after another; every step, also the first, has a forward and a backward pass."""
    numbers = {step for step, _, _ in found["step"]}
    assert numbers == {step for step, _, _ in found["backward"]}
    assert numbers - {step for step, _, _ in found["forward"]} == ({0} if first_unseen else set())
    whole = {step: (begin_ns, end_ns) for step, begin_ns, end_ns in found["step"]}
    for step, (begin_ns, end_ns) in whole.items():
        parts = sorted((b, e) for name in PARTS for number, b, e in found.get(name, ()) if number == step)
        assert parts[0][0] >= begin_ns
        assert parts[-1][1] <= end_ns
        assert all(before[1] <= after[0] for before, after in pairwise(parts)), (step, parts)


def check_steps(workdir: Path, kind: str) -> None:
    """This loop has ended well, and its steps and their times are those of its own count and clock."""
    assert ((workdir / "code").read_text(), (workdir / "err").read_text()) == ("0", "")
    own = json.loads((workdir / "out").read_text())
    marked = spans(workdir)
    assert [step for step, _, _ in marked["step"]] == list(range(own["steps"]))
    assert own["steps"] >= 5
    check_parts(marked, first_unseen=kind == "compiled")
    if kind in LOADED:
        assert {step for step, _, _ in marked["fetch"]} == {step for step, _, _ in marked["step"]}
    if kind in TESTED:
        assert len(marked["evaluate"]) == len(own["runs"])
        within = [(begin_ns, end_ns) for _, begin_ns, end_ns in (*marked["evaluate"], *marked["step"])]
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(within)))
    told_by = TOLD_BY.get(kind, "optimiser")
    assert json.loads((workdir / "attach.json").read_text())["by"] == told_by
    if told_by == "optimiser":
        stepped_ns = {step: end_ns for step, _, end_ns in marked["optimiser"]}
        assert stepped_ns == {step: end_ns for step, _, end_ns in marked["step"]}
    check_own_times(marked, own, kind in ENDS)
