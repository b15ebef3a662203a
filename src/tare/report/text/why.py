"""The container's weight as text: one line a layer, with its interval, its word and the counters that moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tare.analysis.model import Comparison
from tare.analysis.sentences import effect_of, interval_of, noise_text, verdict_phrase, verdict_word
from tare.analysis.why.causes import Answer, Pair, Phase, Tried
from tare.analysis.why.layers import Calls, LayerCalls, LayerCost, Moved, Waterfall
from tare.base.columns import display_width, wrap
from tare.base.text import effect_text, metric_name, quantity_text, share_text, time_text
from tare.report.columns import table
from tare.report.layout import in_words
from tare.report.text.verdict import medians_of

_HEADS = ("layer", "adds", "interval", "verdict", "without it", "counters that moved")

_ANY_WIDTH = 10_000  # characters: nothing is cut
_MOST_LISTED = 12  # differences of one kind between two stores
_TRACED = "System calls are from one traced trial each, whose times are not compared."

_ABOUT = {
    "mounts": "mount namespace, overlay root",
    "pid": "pid namespace",
    "ipc": "ipc namespace",
    "uts": "uts namespace",
    "network": "network namespace",
    "user": "user namespace",
    "cpu": "cpu cgroup (quota)",
    "cpuset": "cpuset cgroup",
    "memory": "memory cgroup (limit)",
    "pids": "pids cgroup",
    "masked_paths": "masked and read-only /proc, /sys",
    "capabilities": "no capabilities",
    "no_new_privileges": "no new privileges",
    "seccomp": "seccomp filter",
    "docker": "Docker's engine",
    "podman": "Podman",
}


def waterfall_text(found: Waterfall, skipped: Mapping[str, str], width: int, calls: Calls | None = None) -> str:
    """The whole first, then its layers in the order in which they were put on, with their system calls if counted."""
    bare, whole = medians_of(found.total)
    head = f"{found.total.called}: bare {bare}, whole container {whole}: {effect_of(found.total)}"
    lines = wrap(f"{head} {interval_of(found.total)} {verdict_phrase(found.total)}", width, indent="  ")
    counted = calls if calls is not None and calls.layers else None
    heads: tuple[str, ...] = _HEADS
    if counted:
        calls_head = f"system calls per {found.total.unit}" if counted.metric.endswith("_step") else "system calls"
        heads = (*_HEADS[:-1], calls_head, _HEADS[-1])
    rows = [_row(layer, counted) for layer in found.layers]
    whole_table = table(rows, heads, _ANY_WIDTH)
    if max(map(display_width, whole_table.splitlines())) <= width:
        lines += ["", whole_table, ""]
    else:
        lines += ["", table([_short_row(layer) for layer in found.layers], _HEADS[:-1], width), ""]
        for row in rows:  # what else is known, on lines of its own: system calls, and counters that moved
            parts = [f"{head}: {cell}" for head, cell in zip(heads[5:], row[5:], strict=True) if cell]
            lines += wrap(f"{row[0]}: {'; '.join(parts)}", width, indent="  ") if parts else []
    if calls is not None:
        lines += wrap(calls.missing or _TRACED, width, indent="  ")
    for sentence in (*_answer(found), *(f"not looked at: {layer_name(name)}: {why}" for name, why in skipped.items())):
        lines += wrap(sentence, width, indent="  ")
    return "\n".join(lines)


def layer_name(layer: str) -> str:
    """A layer for people; several that were put on together are named together."""
    return " + ".join(_ABOUT.get(part, part) for part in layer.split("+"))


SIDES = ("container", "bare metal")  # of a plain `tare why`: the slow one and the other one


def nothing_text(total: Comparison, width: int, sides: tuple[str, str] = SIDES) -> str:
    """Said when the whole weighs nothing: there is no layer to look for."""
    figures = f"({effect_of(total)} {interval_of(total)})"
    sentence = f"{sides[0]} is {verdict_phrase(total)} to {sides[1]} {figures}: there is no cost to explain."
    if sides == SIDES:
        sentence = (
            f"The whole container is {verdict_phrase(total)} to bare metal {figures}: there is no cost to break down, "
            "so the layers were not run. --layers runs them anyway."
        )
    return "\n".join(wrap(sentence, width))


def moved_text(one: Moved) -> str:
    if isinstance(one.before, str) or isinstance(one.after, str):
        return f"{one.name} {one.before} to {one.after}"
    before, after = quantity_text(one.name, one.before), quantity_text(one.name, one.after)
    change = "" if one.share is None else f" ({share_text(one.share)})"
    return f"{metric_name(one.name, one.unit)} {before} to {after}{change}"


def _row(layer: LayerCost, counted: Calls | None) -> tuple[str, ...]:
    moved = "; ".join(moved_text(one) for one in layer.moved)
    calls = (_calls(counted.of(layer.layer)),) if counted else ()
    # What the whole has more than the same without the layer.
    kept = "" if layer.kept is None else f"{effect_of(layer.kept)} {verdict_word(layer.kept)}"
    return layer_name(layer.layer), *_cells(layer.added), kept, *calls, moved


def _short_row(layer: LayerCost) -> tuple[str, ...]:
    """For a narrow terminal: figures alone, none where there are too few blocks for an interval."""
    adds, interval, word = _cells(layer.added)
    known = layer.added is not None and layer.added.low is not None
    without = "" if layer.kept is None else effect_of(layer.kept)
    return layer_name(layer.layer), adds, interval if known else "", word, without


def _calls(found: LayerCalls | None) -> str:
    """With the layer, and by how much more than without it."""
    if found is None:
        return ""
    change = "" if found.share is None else f" ({effect_text(found.share)})"
    return f"{found.with_it:,.0f}{change}" if found.with_it >= 100 else f"{found.with_it:.1f}{change}"


def _cells(found: Comparison | None) -> tuple[str, str, str]:
    return ("", "", "") if found is None else (effect_of(found), interval_of(found), verdict_word(found))


def _answer(found: Waterfall) -> Iterator[str]:
    if found.guilty:
        named = in_words([layer_name(layer.layer) for layer in found.guilty])
        yield f"It is the {named} that costs: surely slower with it than without."
    elif found.total.verdict == "slower":
        yield "The whole is slower, but no single layer is surely so: run more blocks (--repeat)."
    else:
        yield "No layer is surely slower than the ones before it."
    if found.noise_floor is not None:
        yield f"A/A noise: {noise_text(found.noise_floor, found.noise_most)}."
    if found.left_out:
        yield f"{found.left_out} trials could not be used and were left out."


_PHASE = {
    "start-up": "start-up",
    "exit": "exit",
    "data": "waiting for data",
    "compute": "computing",
    "gpu": "the GPU",
    "steps": "its {unit}s",
    "tail": "a few long {unit}s",
    "cpu": "using the CPU",
    "wait": "waiting (for a disk, a timer, a lock, others on its cores)",
}


def phases_text(
    total: Comparison, phases: Sequence[Phase], width: int, sides: tuple[str, str] = SIDES, look: bool = True
) -> str:
    """Step one: what is slower; `look`: whether this was a first look, after which it is measured."""
    quick, slow = medians_of(total)
    where = "on bare metal", "in the container"
    of_quick, of_slow = where if sides == SIDES else [f"with {name}" for name in reversed(sides)]
    head = f"1. What is slower: {total.called} {quick} {of_quick}, {slow} {of_slow}: "
    said = f"{effect_of(total)} {interval_of(total)} {verdict_phrase(total)}."
    if total.low is None and look:
        said = f"{times_text(total)} in each of {total.n} blocks; how much exactly is measured below."
    elif total.low is None:
        said = f"{times_text(total)} by the median of {total.n} blocks, too few for an interval."
    lines = wrap(f"{head}{said}", width, indent="   ")
    return "\n".join([*lines, *phase_lines(phases, width, total.unit)])


def phase_lines(phases: Sequence[Phase], width: int, unit: str) -> list[str]:
    """Where the time goes, one line each."""
    lines = []
    for each in phases:
        line = f"{_phase(each, unit)}: {time_text(each.quick_s)} -> {time_text(each.slow_s)} per run"
        lines += _indented(f"{line}, {share_text(each.share).lstrip('+')} of the difference", width)
    return lines


def _phase(each: Phase, unit: str) -> str:
    return _PHASE[each.name].format(unit=unit)


def suspects_text(
    suspects: Mapping[str, str], ruled_out: Mapping[str, str], width: int, not_looked: Mapping[str, str] | None = None
) -> str:
    """Step two: who is suspected, and who is not."""
    lines = ["2. Suspects, by what both sides recorded:" if suspects else "2. Suspects: none."]
    for name, about in suspects.items():
        lines += _indented(f"- {name}: {about}", width)
    if ruled_out:
        lines += _indented(f"ruled out: {', '.join(ruled_out)}", width)
    if not_looked:
        lines += _indented(f"not looked at: {', '.join(not_looked)}", width)
    return "\n".join(lines)


@dataclass(frozen=True)
class Told:
    """What is known of each suspect, by its name: for the text of an answer."""

    titles: Mapping[str, str]
    evidence: Mapping[str, str]
    cures: Mapping[str, str]
    untried: Mapping[str, str]  # why a suspect was not tried
    ruled_out: Mapping[str, str]
    phases: Sequence[Phase] = ()  # where the time goes, the largest difference first
    not_looked: Mapping[str, str] = field(default_factory=dict)
    located: Sequence[str] = ()  # suspects that are all that the sides differ in


def answer_text(found: Answer, told: Told, width: int, sides: tuple[str, str] = SIDES) -> str:
    """The sentence with the cure, then what was tried, then what was ruled out and by what."""
    lines = []
    for sentence in answer_sentences(found, told, sides[1]):
        lines += wrap(sentence, width)
    if found.tried:
        heads = ("tried", "verdict", f"{sides[0]} without it", "left", f"{sides[1]} with it")
        rows = [(each.cause, each.outcome, *_tests(each)) for each in found.tried]
        lines += ["", table(rows, heads, width)]
    if told.untried:
        lines += ["", "suspected, but not tried:"]
        for name, why in told.untried.items():
            because = f" Not tried: {why}" if why else ""
            lines += _indented(f"{name}: {told.evidence[name]}{because} Cure: {told.cures[name]}", width)
    if told.ruled_out:
        lines += ["", "ruled out:"]
        for name, why in told.ruled_out.items():
            lines += _indented(f"{name}: {why}", width)
    if told.not_looked:
        lines += ["", "not looked at:"]
        for name, why in told.not_looked.items():
            lines += _indented(f"{name}: {why}", width)
    return "\n".join(lines)


def _indented(text: str, width: int) -> list[str]:
    first, *others = wrap(text, width - 2, indent="  ")
    return [f"  {line}" for line in (first, *others)]


def _tests(each: Tried) -> tuple[str, str, str]:
    """The change with its interval; the ratio to bare metal that is left, and that it brings there, without."""
    removed = "" if each.removed is None else _ratio(each.removed)
    left, brought = (
        "" if one is None or one.effect is None else f"{_times(one.effect)}x" for one in (each.left, each.brought)
    )
    return removed, left, brought


def times_text(found: Comparison) -> str:
    """An effect as people say it: `2.1x slower` from half as much again on, else `12 % slower`."""
    if found.effect is None:
        return "not known"
    word = "slower" if found.effect > 0 else "faster"
    if abs(found.effect) >= 0.5:
        times = 1 + found.effect if found.effect > 0 else 1 / (1 + found.effect)
        return f"{times:.0f}x {word}" if times >= 10 else f"{times:.2g}x {word}"
    return f"{abs(found.effect):.1%} {word}".replace("%", " %")


def answer_sentences(found: Answer, told: Told, other: str = "bare metal") -> Iterator[str]:
    """`2.1x slower: 16 threads on 2 cores. `-e OMP_NUM_THREADS=2` gives 1.02x [0.99, 1.05].`, and what is left."""
    total = times_text(found.total).capitalize()
    if found.total.verdict != "slower":
        interval = f"{effect_of(found.total)} {interval_of(found.total)}"
        so = "so there is no sure cost to explain; more blocks (--repeat) may show one."
        yield f"{total} ({interval}): {verdict_phrase(found.total)}, {so}"
        return
    located = [*told.located, *(each.cause for each in found.located)]
    if located and not found.causes:
        named = in_words([told.titles[name] for name in located])
        about = "; ".join(told.evidence[name].rstrip(".") for name in located)
        yield f"{total}: it is in {named}, and what of it costs is not known: {about}."
        return
    if not found.causes:
        whole = f"{total} ({effect_of(found.total)} {interval_of(found.total)})"
        where = [
            f"{share_text(min(1.0, each.share))} of it is in {_phase(each, found.total.unit)}."
            for each in told.phases[:1]
        ]
        tried = (
            "None of the suspects that were tried is surely it."
            if found.tried
            else "Nothing that could be tried is suspected."
        )
        yield " ".join([f"{whole}: not explained.", tried, *where])
        return
    for index, each in enumerate(found.causes):
        cause = f"{told.titles[each.cause]}: {told.evidence[each.cause].rstrip('.')}"
        cure = f"`{told.cures[each.cause]}`"
        if each.outcome == "the cause":
            start = f"{total}: it is {cause}." if index == 0 else f"Or {cause}."
        else:
            share = "" if each.share is None else f" ({share_text(each.share).lstrip('+')} of the cost)"
            start = f"{total}. " * (index == 0) + f"{'A' if index == 0 else 'Another'} part{share}: {cause}."
        if each.same:
            yield f"{start} {cure}: then both sides are the same."
            continue
        if each.left is None:
            yield f"{start} Cure: {cure}."
            continue
        beside = "" if each.alone else ", with what was found before removed as well"
        yield f"{start} {cure} gives {_ratio(each.left)} of {other}'s time{beside}" + _only_together(each, other)
    rest = found.remainder
    if len(found.causes) > 1 and found.cured is not None:
        yield f"All of them together: {_ratio(found.cured)} of {other}'s time."
    if not found.explained:
        left = "" if rest is None or rest.effect is None else f": {times_text(rest)} than {other} is left"
        place = f" It is in {in_words([told.titles[name] for name in located])}." if located else ""
        yield f"The rest is not explained{left}.{place}"


def _only_together(each: Tried, other: str) -> str:
    """Where putting it on the other side brings nothing, it costs only beside something else."""
    brought = each.brought
    if brought is None or brought.high is None or each.removed is None or brought.high >= brought.margin:
        return "."
    return f"; added to {other} it costs nothing, so it is the combination with something else that does."


def _ratio(left: Comparison) -> str:
    if left.effect is None:
        return "an unknown multiple"
    if left.low is None or left.high is None:
        return f"{_times(left.effect)}x"
    return f"{_times(left.effect)}x [{_times(left.low)}, {_times(left.high)}]"


def _times(effect: float) -> str:
    """A ratio: `1.02`; with more digits where two would show nothing, with none where they mean nothing."""
    times = 1 + effect
    return f"{times:.2g}" if 0 < times < 0.1 else f"{times:.2f}" if times < 100 else f"{times:.0f}"


def pair_text(found: Pair, width: int) -> str:
    """Two stores: what is slower, where, and everything that was recorded differently."""
    quick, slow = medians_of(found.total)
    head = (
        f"1. What is slower ({found.side}): {found.total.called} {quick} in {found.quick}, {slow} in "
        f"{found.slow}: {times_text(found.total)} ({effect_of(found.total)} {interval_of(found.total)}), "
        f"{verdict_phrase(found.total)}. The two were not run in turn: what else changed meanwhile is part of it."
    )
    lines = wrap(head, width, indent="   ")
    if found.load:
        differing = "; ".join(_both(found.load, found.quick))
        told = f"The load differs, which is the likely cause: {differing}. Run both with the same load to compare them."
        lines += [f"   {line}" for line in wrap(told, width - 3)]
    lines += phase_lines(found.phases, width, found.total.unit)
    lines += _differing("counters", [moved_text(each) for each in found.counters], width)
    software = [f"{each.key} {each.ours} ({each.theirs} in {found.quick})" for each in found.software]
    lines += _differing("software and environment", software, width)
    lines += _differing("device", _both(found.device, found.quick), width)
    lines += _differing("settings", _both(found.settings, found.quick), width)
    return "\n".join(lines)


def _both(differing: Mapping[str, tuple[Any, Any]], other: str) -> list[str]:
    return [f"{key} {ours} ({theirs} in {other})" for key, (ours, theirs) in differing.items()]


def _differing(what: str, entries: list[str], width: int) -> list[str]:
    if not entries:
        return [f"   {what}: no difference"]
    more = f"; {len(entries) - _MOST_LISTED} more" if len(entries) > _MOST_LISTED else ""
    return [f"   {line}" for line in wrap(f"{what}: {'; '.join(entries[:_MOST_LISTED])}{more}", width - 3, indent="  ")]
