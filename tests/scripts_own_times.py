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
ATTEMPTS = 3  # a busy machine may take the CPU away between the script's clock and ours
AGREE = 0.02
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


def differs(workdir: Path, own: dict[str, Any], ends: bool) -> float:
    """How far the marked steps are from the script's own clock, over all runs of steps: a share of the own time."""
    seconds = [(end_ns - begin_ns) / 1e9 for _, begin_ns, end_ns in spans(workdir)["step"]]
    marked_s = own_s = 0.0
    first = 0
    for run in own["runs"]:
        last = first + len(run)
        marked_s += sum(seconds[first + 1 : last] if ends else seconds[first : last - 1])
        own_s += run[-1] - run[0]
        first = last
    return abs(marked_s - own_s) / own_s


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


def disagreement(workdir: Path, kind: str) -> float:
    """What `differs` says of this loop, once it has ended well, and its steps are those that it counts."""
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
    assert json.loads((workdir / "attach.json").read_text())["by"] == TOLD_BY.get(kind, "optimiser")
    return differs(workdir, own, kind in ENDS)
