"""What both sides recorded, key by key: whatever differs is a suspect, with or without a row in the table of knowledge.

A row says what a difference of its keys means, how likely it costs something, and where. A key without a row is
suspected last. What a cause of its own looks at (a limit that can be moved, a variable) is left to that cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tare.parts.knowledge import row_of
from tare.parts.protocols import Cause, Json, Known, NotLooked, Observation, RuledOut, Side, Suspicion, unseen

_MOST_NAMED = 8
_NDOTS = "resolver.ndots"
_ANYWHERE = frozenset({"start", "data", "compute", "gpu", "tail"})
_READS = frozenset({"start", "data", "tail"})
_COMPUTES = frozenset({"start", "data", "compute", "tail"})
_WAITS = ("wait", "off")


@dataclass(frozen=True)
class Kind:
    """What belongs together: it is suspected, ruled out or not looked at as one."""

    title: str
    cure: str
    phases: frozenset[str] = _ANYWHERE
    spends: tuple[str, ...] = ()
    untried: str = "it cannot be exchanged alone in this container."


_DEVICES = "the device cannot be exchanged here."
_WITH_FILES = "its files are tried where the runs touched them."
KINDS: Mapping[str, Kind] = {
    "architecture": Kind("the image's architecture", "--platform linux/ARCHITECTURE, of this device", _COMPUTES,
                         untried="there is no image of the other architecture to try."),
    "clock": Kind("the clock source", "the same clock source: /sys/devices/system/clocksource", untried=_DEVICES),
    "control_group": Kind("another setting of the control group", "the same settings as on the other side"),
    "device": Kind("the state of the device", "the same settings on both machines: `tare device status` prints them",
                   untried="the other machine is not at hand."),
    "engine": Kind("how the engine runs the container", "the same options as on the other side"),
    "gpu_math": Kind("how the GPU computes",
                     "the same versions in the image, and the same torch.backends settings in the script",
                     frozenset({"gpu"}), untried="versions of CUDA cannot be exchanged alone; see `software`."),
    "huge_pages": Kind("huge pages", "the same /sys/kernel/mm/transparent_hugepage on both sides", _COMPUTES,
                       ("user", "system", "cpu"), _DEVICES),
    "interpreter": Kind("how Python was built", "an interpreter that was built as on the other side", _COMPUTES,
                        ("user", "system", "cpu"), _WITH_FILES),
    "mitigation": Kind("a mitigation of the CPU's speculation", "spec_store_bypass_disable=prctl, or a newer kernel",
                       _COMPUTES, ("user", "system", "cpu")),
    "mount": Kind("how a file system is mounted", "the options of the mount as on the other side", _READS,
                  ("system", *_WAITS)),
    "name_resolution": Kind("how names are resolved", "--dns-option ndots:1, or the servers of the other side",
                            _READS, _WAITS),
    "other": Kind("something that no row of the catalogue knows", "as on the other side"),
    "packages": Kind("installed packages", "the versions of the other side", untried=_WITH_FILES),
    "rights": Kind("the rights of the process", "the capabilities that it had on the other side"),
}  # fmt: skip


class Recorded(Cause):
    """Anything else that both sides recorded and that differs: packages, mounts, the resolver, how Python was built,
    huge pages, rights, the engine, the device."""

    title: ClassVar[str] = "something that was recorded"
    phases: ClassVar[frozenset[str]] = _ANYWHERE

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        """All kinds as one: the heaviest suspicion, else what was not looked at."""
        found = [*self.suspicions(slow, quick).values()]
        held = sorted((each for each in found if isinstance(each, Suspicion)), key=lambda each: -each.weight)
        unknown = [each for each in found if isinstance(each, NotLooked)]
        return (held or unknown or [RuledOut("whatever else was recorded of both sides is the same.")])[0]

    def suspicions(self, slow: Side, quick: Side) -> Mapping[str, Suspicion | RuledOut | NotLooked]:
        pairs = defaultdict[str, dict[str, tuple[Observation, Observation]]](dict)
        for key in sorted({*slow.facts, *quick.facts}):
            if (kind := row_of(key).kind) in KINDS:
                pairs[kind][key] = (slow.seen(key), quick.seen(key))
        return {kind: _of_kind(kind, pairs[kind], slow) for kind in KINDS if kind in pairs or kind != "other"}


def _of_kind(
    name: str, pairs: Mapping[str, tuple[Observation, Observation]], slow: Side
) -> Suspicion | RuledOut | NotLooked:
    kind = KINDS[name]
    differing = [key for key, pair in pairs.items() if unseen(*pair) is None and pair[0] != pair[1]]
    if not differing:
        missing = next((each for pair in pairs.values() if (each := unseen(*pair)) is not None), None)
        if missing is not None or not pairs:
            return missing or NotLooked(f"{kind.title}: nothing of it was recorded of both sides.")
        return RuledOut(f"what was recorded of it ({_listed(list(pairs))}) is the same on both sides.")
    differing.sort(key=lambda key: -row_of(key).prior)
    likely = row_of(differing[0])
    told = "; ".join(_told(key, *pairs[key]) for key in differing[:_MOST_NAMED])
    more = f"; and {len(differing) - _MOST_NAMED} more" if len(differing) > _MOST_NAMED else ""
    change = _change(pairs, slow)
    return Suspicion(
        weight=likely.prior,
        evidence=f"{likely.words}: {told}{more}.",
        without=change,
        cure=kind.cure,
        untried="" if change else kind.untried,
        title=kind.title,
        phases=tuple(sorted(kind.phases)),
        spends=kind.spends,
    )


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    return f"{', '.join(keys[:_MOST_NAMED])}{more}"


def _told(key: str, ours: Observation, theirs: Observation) -> str:
    name = key.removeprefix("packages.python.").removeprefix("packages.system.").removeprefix("place.engine.")
    return f"{name} {_value(ours)}, {_value(theirs)} on the other side"


def _value(seen: Observation) -> str:
    return (str(seen.value) or "none") if isinstance(seen, Known) else "none"


def _change(pairs: Mapping[str, tuple[Observation, Observation]], slow: Side) -> Mapping[str, Json] | None:
    """Names looked up as on the other side, where the container has a network of its line's."""
    ours, theirs = pairs.get(_NDOTS, (None, None))
    if slow.platform != "own" or not slow.fields.get("allow_network") or ours == theirs:
        return None
    return {"flags": {"--dns-option": f"ndots:{theirs.value}"}} if isinstance(theirs, Known) else None
