"""What `tare why` runs: who is suspected, in which order suspects are tried, and the containers of the layers.

Nothing is run here. `Search` is given what both sides recorded, names the sides of the next wave, and is told what came
of it, until the cost is explained or nobody is left to suspect.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from tare.base.command_words import options_in
from tare.base.ledger import growth
from tare.base.text import share_text
from tare.drivers.cgroups.limits import LATER
from tare.drivers.containers.isolation import NEEDED_BY_USER, USUAL
from tare.drivers.containers.unpacked import unpacked
from tare.parts.causes.variables import PLACE_VARIABLES, PLACES, is_settable
from tare.parts.find import find, names
from tare.parts.protocols import Cause, Json, NotLooked, Platform, RuledOut, Side, Suspicion, unseen

BASE, OTHER = "slow", "quick"  # the sides that every wave has: the slow one as far as it is cured, and the other one
MOST_TRIED = 6  # suspects in one search, beside all that the user gave; the others are named as not tried
MOST_AT_ONCE = 2
ALONE = 0.25  # by so much more weight than the next a suspect is tried alone: as a rule it is the cause
_GIVEN = 0.1  # the weight of an option that nothing speaks against but that it was given
_TOGETHER = "It goes only with all of these changed: either half alone changes nothing."
OF_LINE = "line:"  # how the name of a suspected option of a line of the user's begins
MERGED = ("env", "arguments", "flags")  # fields of many values: a change touches some of them
LEAST_SHARE = 0.1  # of the cost: a cause of phases with less of it cannot explain it

# What a cause's phases are called, and which parts of a run tell of them. Where a step has no parts, all are possible.
PARTS: Mapping[str, frozenset[str]] = {
    "start-up": frozenset({"start"}),
    "exit": frozenset({"start"}),
    "data": frozenset({"data"}),
    "gpu": frozenset({"gpu"}),
    "compute": frozenset({"compute", "gpu"}),  # without GPU times, waiting for it is a part of computing
    "steps": frozenset({"data", "compute", "gpu"}),
    "tail": frozenset({"tail", "data", "compute", "gpu"}),
}


def without(cause: str) -> str:
    """The role of the slow side without this."""
    return f"without {cause}"


def added(cause: str) -> str:
    """The role of the other side with this."""
    return f"with {cause}"


class Level(NamedTuple):
    """A platform with its fields."""

    platform: str
    fields: Mapping[str, Any]

    def changed(self, change: Mapping[str, Json]) -> Level:
        """Variables and arguments are merged; a field that becomes None is left to its default."""
        change = cast(type[Platform], find("platforms", self.platform)).as_own(self.fields, change)
        merged = {name: {**(self.fields.get(name) or {}), **(change.get(name) or {})} for name in MERGED}
        made = {**self.fields, **change, **{name: values for name, values in merged.items() if values}}
        for name in ("hidden", "compiled", "taken", "in_memory"):  # files of two suspects
            if change.get(name) and self.fields.get(name):
                made[name] = [*dict.fromkeys((*self.fields[name], *change[name]))]
        return Level(self.platform, {name: value for name, value in made.items() if value is not None})

    def as_plain(self) -> Any:
        """As a study writes it: a list there is a list of levels, so a value that is one stands in another."""
        sizes = {n: f"{value} B" for n in ("memory", "shm", "io_rate") if isinstance(value := self.fields.get(n), int)}
        fields = {n: [v] if isinstance(v, list) else v for n, v in {**self.fields, **sizes}.items()}
        return {self.platform: fields} if fields else self.platform

    def settings(self) -> dict[str, Any]:
        """The settings that records of this platform have."""
        part = find("platforms", self.platform).model_validate(dict(self.fields))
        return {
            "platform": self.platform,
            **dict.fromkeys(f"platform.{name}" for name in LATER),
            **{f"platform.{name}": value for name, value in part.settings().items()},
        }

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Level:
        """The platform of a record, with the fields that are not at their defaults."""
        name = str(settings["platform"])
        known = find("platforms", name).model_fields
        given = {key.partition(".")[2]: value for key, value in settings.items() if key.startswith("platform.")}
        fields = {key: _read(value) for key, value in given.items() if key in known}
        part = find("platforms", name).model_validate(
            {key: value for key, value in fields.items() if value is not None}
        )
        usual = {key: field.get_default(call_default_factory=True) for key, field in known.items()}
        made = {key: fields[key] for key in fields if getattr(part, key) != usual[key] and fields[key] is not None}
        return cls(name, made)

    def root(self) -> Path | None:
        """Where its files lie on this device, before anything was mounted on them; None where nobody knows."""
        if self.fields.get("dockerfile"):
            return None
        part = cast(type[Platform], find("platforms", self.platform))
        image = {**self.fields, **part.limits(self.fields)}.get("image")
        return unpacked(str(image)).root if image else Path("/")

    def is_possible(self) -> bool:
        """Whether the platform has all these fields: not each can be changed in every way."""
        return all(name in find("platforms", self.platform).model_fields for name in self.fields)


def _read(value: Any) -> Any:
    """A setting as a store may have it: containers are texts there."""
    if isinstance(value, str) and value[:1] in "[{":
        return json.loads(value)
    return value


def workload_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The workload of a record, as a study writes it."""
    name = str(settings["workload"])
    known = find("workloads", name).model_fields
    given = {key.partition(".")[2]: _read(value) for key, value in settings.items() if key.startswith("workload.")}
    return {name: {key: value for key, value in given.items() if key in known and value not in (None, [], {}, ())}}


def with_recorded_variables(slow: Level, quick: Level, ours: Side, theirs: Side) -> tuple[Level, Level]:
    """Both sides with the variables and options that they were recorded with and that differ, to be run again.

    The command line of both is the slow side's. Where programs and files are found stays each side's own, and so does
    a variable whose value was not kept.
    """
    known = (ours.variables() | theirs.variables()) - {*PLACE_VARIABLES}
    sides = {name: (ours.variable(name), theirs.variable(name)) for name in known if is_settable(name, ours, theirs)}
    differing = sorted(name for name, pair in sides.items() if unseen(*pair) is None and pair[0] != pair[1])
    variables = [{"env": {name: side.env(name) for name in differing}} if differing else {} for side in (ours, theirs)]
    mine, other = (options_in(side.words()) for side in (ours, theirs))
    options = sorted(name for name in {*mine, *other} - {*PLACES} if mine.get(name) != other.get(name))
    arguments = {"arguments": {name: other.get(name) for name in options}} if options else {}
    return slow.changed(variables[0]), quick.changed(variables[1] | arguments)


@dataclass(frozen=True)
class Suspects:
    """Who may have slowed a side down, the likeliest first; who was ruled out, and who not looked at, each with why."""

    held: Mapping[str, Suspicion]
    ruled_out: Mapping[str, str]
    not_looked: Mapping[str, str] = field(default_factory=dict)

    def cures(self) -> dict[str, str]:
        return {name: each.cure for name, each in self.held.items()}

    def offered(self) -> dict[str, str]:
        """The cures that may be told before they are proved: none that takes a protection away."""
        weakens = {name for name, each in self.held.items() if each.weakens or cause_of(name).weakens}
        return {name: cure for name, cure in self.cures().items() if name not in weakens}

    def evidence(self) -> dict[str, str]:
        return {name: each.evidence for name, each in self.held.items()}

    def aside(self) -> dict[str, list[str]]:
        """Who is not suspected, by why: for the text."""
        return {"ruled out": [*self.ruled_out], "not looked at": [*self.not_looked]}

    def titles(self) -> dict[str, str]:
        own = {name: each.title for name, each in self.held.items() if each.title}
        return {name: cause_of(name).title for name in (*self.held, *self.ruled_out, *self.not_looked)} | own


def cause_of(name: str) -> type[Cause]:
    """By its name, or by that of a part of what it suspects."""
    return cast(type[Cause], find("causes", name.partition(":")[0]))


def examined(slow: Side, quick: Side, shares: Mapping[str, float] | None = None) -> Suspects:
    """What each cause of the catalogue finds; `shares`: how much of the cost each part of the run has, if known."""
    held, ruled_out, not_looked = {}, {}, {}
    more_s = slow.metrics.get("wall_s", 0.0) - quick.metrics.get("wall_s", 0.0)
    grown = growth(slow.spent(), quick.spent(), more_s)
    seen = {
        f"{name}:{own}" if own else name: found
        for name in names("causes")
        for own, found in cause_of(name)().suspicions(slow, quick).items()
    }
    for name, first in seen.items():
        cause = cause_of(name)
        found = _with_given(cause, slow, quick, first)
        phases = frozenset(found.phases if isinstance(found, Suspicion) else ())
        fits = fitting(phases or cause.phases, shares or {})
        if isinstance(found, RuledOut):
            ruled_out[name] = found.why
        elif isinstance(found, NotLooked):
            not_looked[name] = found.reason
        elif found.guess and not found.given and fits < LEAST_SHARE:  # a difference that was seen is not acquitted
            largest, share = max((shares or {}).items(), key=lambda pair: pair[1])
            where = f"the {largest}, where {share_text(min(1.0, share)).lstrip('+')} of the cost is"
            ruled_out[name] = f"{found.evidence.rstrip('.')}; but it cannot slow down {where}."
        else:
            touched = touching(found.spends or cause.spends, grown)
            held[name] = replace(found, weight=found.weight * (0.5 + 0.5 * fits) * (0.4 + 0.6 * touched))
    held = _once(held, Level(slow.platform, slow.fields))
    return Suspects(dict(sorted(held.items(), key=lambda pair: -pair[1].weight)), ruled_out, not_looked)


def _once(held: Mapping[str, Suspicion], slow: Level) -> dict[str, Suspicion]:
    """Without an option of a line of which a cause that knows more of it is suspected: both would try the same."""
    known = [each.without for name, each in held.items() if each.without is not None and not name.startswith(OF_LINE)]
    touched = {option for change in known for option in slow.changed(change).fields.get("flags") or ()}
    touched |= {
        f"--env={variable}" for change in known if len(change.get("env") or ()) == 1 for variable in change["env"]
    }
    return {name: each for name, each in held.items() if name.removeprefix(OF_LINE) not in touched}


def _with_given(
    cause: type[Cause], slow: Side, quick: Side, found: Suspicion | RuledOut | NotLooked
) -> Suspicion | RuledOut | NotLooked:
    """What the user gave is a suspect, whatever else is known of it: who gives an option asks about it, too."""
    if isinstance(found, Suspicion):
        return replace(found, given=found.given or _is_given(found.without or {}, slow.fields))
    value, other = slow.fields.get(cause.option), quick.fields.get(cause.option)
    if not _is_set(value) or value == other:
        return found
    why = found.why if isinstance(found, RuledOut) else found.reason
    return Suspicion(
        weight=_GIVEN,
        evidence=f"it was given: {cause.option} is {value}; {why}",
        without={cause.option: other},
        added={cause.option: value},
        cure=f"no --{cause.option.replace('_', '-')}",
        given=True,
    )


def _is_given(change: Mapping[str, Json], fields: Mapping[str, Json]) -> bool:
    """Whether a change touches what the user gave; of variables and arguments each is an option of its own."""
    given = {option: fields[option] for option in change if _is_set(fields.get(option))}
    return any(option not in MERGED or change[option].keys() & value.keys() for option, value in given.items())


def _is_set(value: Any) -> bool:
    return value not in (None, "", {}, [], ())


def fitting(phases: frozenset[str], shares: Mapping[str, float]) -> float:
    """How much of the cost lies where this can slow a run down, 0 to 1; all of it where nobody knows."""
    known = {part: share for part, share in shares.items() if part in PARTS and share > 0}
    if not known:
        return 1.0
    fits = sum(share for part, share in known.items() if PARTS[part] & phases)
    return fits / sum(known.values())


def touching(spends: Collection[str], grown: Mapping[str, float]) -> float:
    """How much of what grew in the ledger this can make grow, 0 to 1; all of it where nobody knows."""
    return sum(share for name, share in grown.items() if name in spends) if spends and grown else 1.0


@dataclass
class Search:
    """The interventions, wave by wave: first the likeliest suspect, or two that are about as likely.

    Whoever surely costs something stays removed in the waves that follow: a large cost would hide a small one.
    """

    slow: Level
    quick: Level
    suspects: Mapping[str, Suspicion]
    removed: list[str] = field(default_factory=list)
    unseen: set[str] = field(default_factory=set)  # who was not found to cost anything, beside what else cost then
    acquitted: set[str] = field(default_factory=set)  # who was tried once more without it
    tried: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    halved: dict[str, tuple[str, ...]] = field(default_factory=dict)  # bundles, with the names of their halves
    checked: bool = True  # whether all that was removed has been looked at together

    def __post_init__(self) -> None:
        self.suspects = dict(self.suspects)
        while whole := [name for name in self.located() if self.suspects[name].parts]:
            self._halve(whole[0])  # all that the sides differ in costs something: no trial has to show that

    def narrow(self, name: str, found: Suspicion) -> None:
        """Try what was found to differ within something that costs: its halves first, then all of it."""
        whole = f"{name}:all" if found.bundle else _half_name(name, 1, found)
        self.suspects = {whole: replace(found, given=True), **self.suspects}
        if found.parts:
            self._halve(whole)

    def _halve(self, name: str) -> None:
        """Both halves of a bundle, to be tried before all others: it costs something, and one of them may tell what."""
        bundle = self.suspects[name]
        halves = {_half_name(name, n, each): replace(each, given=True) for n, each in enumerate(bundle.parts, 1)}
        self.halved[name] = tuple(halves)
        rest = {each: found for each, found in self.suspects.items() if each != name}
        self.suspects = {**halves, **rest, name: replace(bundle, parts=())}

    def _join_halves(self) -> None:
        """Say of a bundle that costs something, while neither half of it does, that only both together do."""
        for name, halves in self.halved.items():
            costs = self.outcomes.get(name) == "located" or self._makes_the_sides_the_same(name)
            if costs and all(self.outcomes.get(half) == "not it" for half in halves):
                self.note(name, _TOGETHER)

    def note(self, name: str, sentence: str) -> None:
        """A further sentence of evidence, said once."""
        found = self.suspects.get(name)
        if found is not None and sentence not in found.evidence:
            self.suspects = {**self.suspects, name: replace(found, evidence=f"{found.evidence} {sentence}")}

    def candidates(self) -> list[str]:
        """Who is yet to be tried, the likeliest first: all that were given, and the first of the others."""
        waiting = {name for name, halves in self.halved.items() if not self._are_empty(halves)}
        possible = [name for name in self.suspects if name not in waiting and self._levels(name)]
        others = [name for name in possible if not self.suspects[name].given]
        left_out = {*others[MOST_TRIED:], *self.tried}
        return [name for name in possible if name not in left_out]

    def _are_empty(self, halves: Iterable[str]) -> bool:
        """Whether none of these, nor of their own halves, costs anything: then the whole of them is yet to be tried."""
        empty = ("not it", "cannot tell", "does not run")
        return all(self.outcomes.get(each) in empty and self._are_empty(self.halved.get(each, ())) for each in halves)

    @property
    def bundles(self) -> frozenset[str]:
        """Whose removal exchanges many things at once."""
        return frozenset(name for name, each in self.suspects.items() if each.bundle)

    def located(self) -> list[str]:
        """Bundles that are all that the sides differ in: the cost is in them, which no trial has to show."""
        return [name for name in self.suspects if self._makes_the_sides_the_same(name)]

    def _makes_the_sides_the_same(self, name: str) -> bool:
        found = self.suspects[name]
        level = None if found.without is None else self.slow.changed(found.without)
        return found.bundle and level is not None and level.is_possible() and level.as_plain() == self.quick.as_plain()

    def base(self) -> Level:
        """The slow side without all that was found to cost something."""
        level = self.slow
        for name in self.removed:
            level = level.changed(self.suspects[name].without or {})
        return level

    def next(self) -> dict[str, Level]:
        """The sides of the next wave by their roles; none where there is nothing left to try."""
        waiting = self.candidates()
        if not waiting:
            return {} if self.checked else {OTHER: self.quick, BASE: self.base()}
        first, *others = waiting
        near = [name for name in others if self.suspects[name].weight > self.suspects[first].weight - ALONE]
        chosen = [first, *near[: MOST_AT_ONCE - 1]]
        sides = {OTHER: self.quick, BASE: self.base()}
        for name in chosen:
            sides |= self._levels(name)
        return sides

    def _levels(self, name: str) -> dict[str, Level]:
        found, made = self.suspects[name], {}
        if self._makes_the_sides_the_same(name):
            return {}
        if found.without is not None:
            made[without(name)] = self.base().changed(found.without)
        if found.added is not None:
            made[added(name)] = self.quick.changed(found.added)
        return {role: level for role, level in made.items() if level.is_possible()}

    def learn(self, outcomes: Mapping[str, str], failing: Collection[str] = ()) -> None:
        """What came of a wave, by cause: `the cause`, `a part`, `located`, `not it`, `cannot tell`, `does not run`;
        `failing`: without which the program was not seen to run, so that they stay."""
        self.tried += [name for name in outcomes if name not in self.tried]
        self.outcomes |= outcomes
        for name in [name for name, word in outcomes.items() if word in ("located", "does not run")]:
            if self.suspects[name].parts:
                self._halve(name)
        self._join_halves()
        costing = [name for name, word in outcomes.items() if word in ("the cause", "a part")]
        costing = [name for name in costing if self.suspects[name].without is not None and name not in failing]
        self.unseen |= {name for name, word in outcomes.items() if word in ("not it", "cannot tell")}
        self.removed += costing
        self.checked = len(costing) <= 1
        if costing:  # beside a large cost a small one is not seen: once more, without the large one
            self.tried = [name for name in self.tried if name not in self.unseen - self.acquitted]
            self.acquitted |= self.unseen


def _half_name(name: str, number: int, half: Suspicion) -> str:
    """`other_variables:LOGLEVEL` of one variable, `software:/app/parse.py` of one file, `software:1.2` of several."""
    cause, _, path = name.partition(":")
    change = half.without or {}
    changed = [*(change.get("env") or change.get("taken") or change.get("hidden") or ())]
    if not half.bundle and changed and " " not in changed[0]:  # roles are words
        return f"{cause}:{changed[0]}"
    return f"{cause}:{path.removeprefix('all') and path + '.'}{number}"


class Stages:
    """The containers to run: the whole, the way up to it, the whole less one layer each, and the engines' own."""

    def __init__(self, fields: Mapping[str, Any], order: tuple[str, ...], engines: Sequence[Any]) -> None:
        self._fields = fields
        self.whole = self._runc(order)
        self.chain = [self._runc(order[:count]) for count in range(len(order) + 1)]
        self.without = [self._runc(tuple(each for each in order if each != layer)) for layer in order[:-1]]
        self.aside = [self._runc((*order, "user"))] if set(order) >= NEEDED_BY_USER else []
        self.engines = list(engines)

    def _runc(self, layers: tuple[str, ...]) -> dict[str, Any]:
        # A profile is no limit: without its layer it is not there, and must not make a level of its own.
        kept = {name: value for name, value in self._fields.items() if name != "seccomp_profile" or "seccomp" in layers}
        return {"runc": {**kept, "isolation": [list(layers)]}}


def skipped_layers(limits: Iterable[str], only: Sequence[str] | None) -> dict[str, str]:
    """Layers that are not measured, and why; `only`: those that were selected."""
    options = {"cpu": "quota", "cpuset": "cpuset", "memory": "memory"}
    skipped = {
        layer: f"the container has no limit of that kind (--{option} gives it one)."
        for layer, option in options.items()
        if option not in limits
    }
    skipped |= {layer: "not selected (--layers)." for layer in USUAL if only is not None and layer not in only}
    if needed := sorted(NEEDED_BY_USER & skipped.keys()):
        skipped["user"] = f"it needs the layers {', '.join(needed)}."
    return skipped
