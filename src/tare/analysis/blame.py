"""Which part of a step a difference lies in: the first thing to know about one that is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tare.analysis.model import Comparison
from tare.analysis.stats import FLOOR
from tare.records.model import Record

WHOLE = "step_s"
PARTS = {  # metric -> what people call it; compute is left out where its own parts are known
    "stall_s": "the wait for data",
    "copy_s": "the copy to the device",
    "forward_s": "the forward pass",
    "backward_s": "the backward pass",
    "optimiser_s": "the optimiser step",
    "pre_process_s": "pre-processing",
    "inference_s": "inference",
    "post_process_s": "post-processing",
    "overhead_s": "the loop around it",
    "compute_s": "compute",
}
_WITHIN_COMPUTE = ("forward_s", "backward_s", "optimiser_s", "inference_s")
_MOST_OF_IT = 0.5


def where_it_lies(found: Comparison, ours: Sequence[Record], theirs: Sequence[Record]) -> str | None:
    """`96 % of what docker has more than bare is in the optimiser step`; None where no part holds most of it."""
    if found.metric != WHOLE or found.verdict not in ("slower", "faster"):
        return None
    whole_s = _difference(WHOLE, ours, theirs)
    if whole_s is None or whole_s[0] == 0:
        return None
    shares = {
        part: (gap[0] / whole_s[0], gap) for part in _known(ours, theirs) if (gap := _difference(part, ours, theirs))
    }
    if not shares:
        return None
    part, (share, (_, before_s, after_s)) = max(shares.items(), key=lambda item: item[1][0])
    if share < _MOST_OF_IT:
        return None
    more = "more" if whole_s[0] > 0 else "less"
    return (
        f"{min(share, 1.0):.0%} of what {found.level!r} takes {more} than {found.against!r} is in {PARTS[part]}: "
        f"{before_s * 1e3:.3g} ms to {after_s * 1e3:.3g} ms."
    )


def _known(ours: Sequence[Record], theirs: Sequence[Record]) -> list[str]:
    """The parts that both sides have, none of which holds another."""
    both = [part for part in PARTS if all(any(part in r.metrics for r in side) for side in (ours, theirs))]
    inner = [part for part in both if part in _WITHIN_COMPUTE]
    return [part for part in both if not (part == "compute_s" and inner)]


def _difference(metric: str, ours: Sequence[Record], theirs: Sequence[Record]) -> tuple[float, float, float] | None:
    """The median difference within blocks, and both medians; None where too few blocks hold both."""
    left = {record.block: record.metrics[metric] for record in ours if metric in record.metrics}
    right = {record.block: record.metrics[metric] for record in theirs if metric in record.metrics}
    blocks = sorted(left.keys() & right.keys())
    if len(blocks) < FLOOR:
        return None
    gaps = [left[block] - right[block] for block in blocks]
    medians = [float(np.median([side[block] for block in blocks])) for side in (right, left)]
    return float(np.median(gaps)), medians[0], medians[1]
