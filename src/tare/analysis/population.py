"""Do these trials belong together? One machine and software within a level (M8), one computation across them (M9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tare.analysis.cells import text
from tare.analysis.parity import flat, rule_for
from tare.records.model import Record

# Of the device: what makes two records of one level two populations. (A boot id changes with each reboot: no matter.)
DEVICE_KEYS = ("kernel", "machine", "cpu", "board", "os", "cpu.governor", "cores", "transparent_hugepage")
# Of what a built-in program says of itself: what is the same wherever the same was computed.
_SAME_WORK = {
    "loss_digest": "ended with another loss",
    "answers_digest": "gave other answers",
    "steps": "did another number of steps",
}
NAMED = 3


def mixed_populations(label: str, records: Sequence[Record]) -> list[str]:
    """A sentence for each fact of the device or the software that changes within one level."""
    values: dict[str, dict[str, None]] = {}
    for record in records:
        for key, value in _population(record).items():
            values.setdefault(key, {})[text(value)] = None
    return [
        f"{label}: its trials do not share one {key} ({', '.join(list(found)[:NAMED])}); "
        "they are pooled all the same, so read the interval with care."
        for key, found in values.items()
        if len(found) > 1
    ]


def other_computation(ours: Sequence[Record], theirs: Sequence[Record], *, level: str, against: str) -> list[str]:
    """Sentences where the two sides of a block did not compute the same: another loss, or other counts of steps."""
    return [
        f"Not the same computation: {level} {what} than {against} in {where}, with the same seed."
        for what, where in _apart(ours, theirs)
    ]


def not_deterministic(level: str, records: Sequence[Record]) -> list[str]:
    """Sentences where a level's A/A twin, the very same trial run again, did not compute the same."""
    twins, firsts = [each for each in records if each.twin], [each for each in records if not each.twin]
    return [
        f"{level} is not deterministic: its A/A twin {what} than itself in {where}, with the same seed."
        for what, where in _apart(twins, firsts)
    ]


def _apart(ours: Sequence[Record], theirs: Sequence[Record]) -> Iterable[tuple[str, str]]:
    """What the outcomes of two sides do not share, and in which blocks."""
    for key, what in _SAME_WORK.items():
        left, right = _by_block(ours, key), _by_block(theirs, key)
        both = left.keys() & right.keys()
        apart = sorted(block for block in both if left[block] != right[block])
        if apart:
            blocks = ", ".join(str(block) for block in apart[:NAMED]) + (" ..." if len(apart) > NAMED else "")
            yield what, f"{len(apart)} of {len(both)} blocks (block {blocks})"


def _population(record: Record) -> dict[str, object]:
    device = flat(record.facts.get("device") or {})
    software = flat(record.facts.get("inside") or {})
    return {
        **{key: device[key] for key in DEVICE_KEYS if key in device},
        **{f"inside {key}": value for key, value in software.items() if rule_for(key).matters},
        **({"version of tare": record.tare_version} if record.tare_version else {}),
    }


def _by_block(records: Iterable[Record], key: str) -> Mapping[int, set[str]]:
    values: dict[int, set[str]] = {}
    for record in records:
        outcome = record.facts.get("outcome")
        if isinstance(outcome, Mapping) and outcome.get(key) is not None:
            values.setdefault(record.block, set()).add(text(outcome[key]))
    return values
