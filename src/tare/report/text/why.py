"""The container's weight as text: one line a layer, with its interval, its word and the counters that moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tare.analysis.model import Comparison
from tare.analysis.sentences import claim_of, effect_of, interval_of, noise_text, verdict_phrase, verdict_word
from tare.analysis.why.causes import Answer, Pair, Phase, Tried
from tare.analysis.why.layers import Calls, LayerCalls, LayerCost, Moved, Waterfall
from tare.analysis.why.where import Grown, Where
from tare.base.columns import display_width, wrap
from tare.base.text import count_text, effect_text, metric_name, quantity_text, share_text, time_text
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


def nothing_text(total: Comparison, width: int, sides: tuple[str, str] = SIDES, files: str = "") -> str:
    """Said when the whole weighs nothing: there is no layer to look for."""
    figures = f"({effect_of(total)} {interval_of(total)})"
    who, rest = sides[0], "there is no cost to explain."
    if sides == SIDES:
        who, rest = (
            "The whole container",
            ("there is no cost to break down, so the layers were not run. --layers runs them anyway."),
        )
    sentence = f"{claim_of(total, who, f' than {sides[1]}', f' as {sides[1]}')} {figures}: {rest}"
    return "\n".join(wrap(f"{sentence} {files}".rstrip(), width))


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
        yield "The whole is slower, but no single layer is surely so: run more blocks (--set repeat=12)."
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
    "user": "using the CPU",
    "system": "using the CPU in the kernel",
    "queue": "ready, and waiting for a core",
    "throttled": "stopped by the CPU quota",
    "wait": "waiting (for a disk, a timer, a lock, a network)",
    "off": "not running (waiting for a core, a disk, a timer, a lock or a network)",
}


def phases_text(total: Comparison, phases: Sequence[Phase], width: int, sides: tuple[str, str] = SIDES) -> str:
    """Step one: what is slower."""
    quick, slow = medians_of(total)
    where = "on bare metal", "in the container"
    of_quick, of_slow = where if sides == SIDES else [f"with {name}" for name in reversed(sides)]
    head = f"1. What is slower: {total.called} {quick} {of_quick}, {slow} {of_slow}: "
    said = f"{effect_of(total)} {interval_of(total)} {verdict_phrase(total)}."
    if total.low is None:
        said = f"{times_text(total)}, of one block: too few for an interval."
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


def suspects_text(suspects: Mapping[str, str], aside: Mapping[str, Sequence[str]], width: int) -> str:
    """Step two: who is suspected, and who is not."""
    lines = ["2. Suspects, by what both sides recorded:" if suspects else "2. Suspects: none."]
    for name, about in suspects.items():
        lines += _indented(f"- {name}: {about}", width)
    for why, names in aside.items():
        if names:
            lines += _indented(f"{why}: {', '.join(names)}", width)
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
    offered: Sequence[str] = ()  # those whose cure may be told before it is proved
    where: str = ""  # what grew: said where the causes do not explain all


def answer_text(
    found: Answer, told: Told, width: int, sides: tuple[str, str] = SIDES, *, verbose: bool = False,
    marked: bool = False,
) -> str:  # fmt: skip
    """What is slower, the cause, its proof, the change, what is left; `verbose`: what was tried and ruled out, too."""
    lines = []
    for head, sentence in answer_lines(found, told, sides, marked=marked):
        said, *pasted = sentence.split("\n")  # what is to be pasted is not broken into lines of ours
        lines += [*wrap(f"{head}: {said}", width, indent=" " * 8), *pasted]
    if not verbose:
        return "\n".join(lines)
    if told.phases:
        lines += ["", "where the time goes:", *phase_lines(told.phases, width, found.total.unit)]
    if found.tried:
        heads = ("tried", "verdict", f"{sides[0]} without it", "left", f"{sides[1]} with it")
        rows = [(each.cause, each.outcome, *_tests(each)) for each in found.tried]
        lines += ["", table(rows, heads, width)]
    if told.untried:
        lines += ["", "suspected, but not tried:"]
        for name, why in told.untried.items():
            because = f" Not tried: {why}" if why else ""
            lines += _indented(f"{name}: {told.evidence[name]}{because}", width)
    if told.ruled_out:
        lines += ["", "ruled out:"]
        for name, why in told.ruled_out.items():
            lines += _indented(f"{name}: {why}", width)
    if told.not_looked:
        lines += ["", "not looked at:"]
        for name, why in told.not_looked.items():
            lines += _indented(f"{name}: {why}", width)
    return "\n".join(lines)


_COMPILES = "<frozen importlib._bootstrap_external>:source_to_code"


def where_text(spent: Sequence[Phase], where: Where | None, unit: str) -> str:
    """What grew: the largest entry of the ledger, the function, and the wait in the kernel; empty where nothing did."""
    told = []
    if spent:
        first = spent[0]
        times = f"{time_text(first.quick_s)} -> {time_text(first.slow_s)}"
        told.append(f"{_phase(first, unit)}: {times} per run, {share_text(first.share).lstrip('+')} of what grew")
    if where is not None and where.function is not None:
        told.append(f"most of it is in {_grown(where.function)}")
        inside = [each for each in where.inside if each.name != where.function.name]
        told += [f"these took longer in themselves: {', '.join(map(_grown, inside))}"] if inside else []
    if where is not None and where.kernel:
        told.append(f"samples of the process show more of: {', '.join(map(_grown, where.kernel))}")
    return f"{'; '.join(told)}." if told else ""


def _grown(each: Grown) -> str:
    file, _, function = each.name.rpartition(":")
    name = {"<module>": f"the import of {file}"}.get(function, f"{function}() of {file}")
    name = (
        "Python's compiler, for modules without __pycache__" if each.name == _COMPILES else name if file else each.name
    )
    return f"{name} ({time_text(each.quick_s)} -> {time_text(each.slow_s)})"


def _indented(text: str, width: int) -> list[str]:
    first, *others = wrap(text, width - 2, indent="  ")
    return [f"  {line}" for line in (first, *others)]


def _tests(each: Tried) -> tuple[str, str, str]:
    """The change with its interval; the ratio to bare metal that is left, and that it brings there, without."""
    removed = "" if each.removed is None else _ratio(each.removed)
    left, brought = (
        "" if one is None or one.effect is None else f"{_times(one.in_time().effect or 0.0)}x"
        for one in (each.left, each.brought)
    )
    return removed, left, brought


def times_text(found: Comparison) -> str:
    """An effect as people say it: `2.1x slower` from half as much again on, else `12 % slower`."""
    found = found.in_time()
    if found.effect is None:
        return "not known"
    word = "slower" if found.effect > 0 else "faster"
    if abs(found.effect) >= 0.5:
        times = 1 + found.effect if found.effect > 0 else 1 / (1 + found.effect)
        return f"{times:.0f}x {word}" if times >= 10 else f"{times:.2g}x {word}"
    return f"{abs(found.effect):.1%} {word}".replace("%", " %")


SURE, UNSURE = "sure", "not yet proved"
_SAME = "without it both sides are the same."


def answer_lines(
    found: Answer, told: Told, sides: tuple[str, str] = SIDES, *, marked: bool = False
) -> Iterator[tuple[str, str]]:
    """What is slower and by how much; of each cause its proof and the change; what is left. With `marked`, whether
    each of these is sure."""
    is_sure = found.total.verdict == "slower"
    quick, slow = medians_of(found.total)
    figures = f"{found.total.called} {slow} ({sides[0]}), {quick} ({sides[1]})"
    blocks = count_text(found.total.n, "block")
    if is_sure:
        said = f"{times_text(found.total)} {_times_interval(found.total)}: {figures}, {blocks}."
    else:
        effect = f"{effect_of(found.total)} {interval_of(found.total)}"
        said = f"{verdict_phrase(found.total)}: {effect}, {figures}, {blocks}."
    yield _marked("Slower", is_sure, marked), said
    for each in found.causes:
        name = "Cause" if each.outcome == "the cause" else "Part"
        yield _marked(name, True, marked), f"{told.titles[each.cause]}: {told.evidence[each.cause].rstrip('.')}."
        yield "Proof", _proof(each, sides)
        yield "Change", told.cures[each.cause]
    located = [*told.located, *(each.cause for each in found.located)]
    if located and not found.causes:
        parts = [name for name in located if not any(other.startswith(f"{name}:") for other in located)]
        about = "; ".join(told.evidence[name].rstrip(".") for name in parts)  # a part says more than its whole
        yield _marked("Cause", True, marked), f"it is in {_titles(located, told)}: {about}."
        yield "Proof", _proof(found.located[-1], sides) if found.located else _SAME
    elif not found.causes:
        yield from _best_suspect(found, told, marked)
    if is_sure and not found.explained and told.where:
        yield "Where", told.where
    yield "Left", _what_is_left(found, told, located, sides[1])


def _titles(names: Sequence[str], told: Told) -> str:
    """Two parts of one suspect have one title."""
    return in_words(list(dict.fromkeys(told.titles[name] for name in names)))


def _marked(head: str, is_sure: bool, marked: bool) -> str:
    return f"{head} ({SURE if is_sure else UNSURE})" if marked else head


def _best_suspect(found: Answer, told: Told, marked: bool) -> Iterator[tuple[str, str]]:
    """Nobody is proved: the first who was not acquitted, without a cure that takes a protection away."""
    if found.total.verdict != "slower" and (found.total.in_time().effect or 0.0) <= found.total.margin:
        yield "Cause", "not looked for: nothing seems slower."
        return
    acquitted = {each.cause for each in found.tried if each.outcome == "not it"}
    best = next((name for name in told.evidence if name not in acquitted), None)
    if best is None:
        yield (
            "Cause",
            "not found: " + ("none of those that were tried is it." if found.tried else "nobody is suspected."),
        )
        return
    head = "Suspect" if marked else "Suspect (not proved)"
    yield _marked(head, False, marked), f"{told.titles[best]}: {told.evidence[best].rstrip('.')}."
    if best in told.offered and told.cures[best]:
        yield "Try", told.cures[best]


def _proof(each: Tried, sides: tuple[str, str]) -> str:
    """The share of the cost that goes without it, and what is left."""
    if each.same:
        return _SAME
    blocks = count_text(each.blocks, "block")
    if each.removed is None:
        brought = "" if each.brought is None else f" makes it {times_text(each.brought)}"
        return f"{sides[1]} with it{brought}, in {blocks}."
    share = "part of the cost goes"
    if each.share is not None:
        reach = "" if each.share_low is None else f" [{_percent(each.share_low)}, {_percent(each.share_high or 0)}]"
        share = f"{_percent(each.share)} %{reach} of the cost goes"
    left = "" if each.left is None else f"; {_ratio(each.left)} of the time of {sides[1]} is left"
    beside = "" if each.alone else ", with what was found before removed as well"
    return f"without it {share}, in {blocks}{left}{beside}{_only_together(each, sides[1])}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def _what_is_left(found: Answer, told: Told, located: Sequence[str], other: str) -> str:
    if found.total.verdict != "slower" and not found.causes:
        return "more blocks may show a cost (--set repeat=12)."
    if not found.causes:
        return "what of it costs is not known." if located else "all of it."
    if found.explained:
        cured = (
            "" if len(found.causes) < 2 or found.cured is None else f": {_ratio(found.cured)} of the time of {other}"
        )
        return f"nothing that is sure{cured}."
    rest = found.remainder
    left = "" if rest is None or rest.effect is None else f": {times_text(rest)} than {other}"
    place = f" It is in {_titles(located, told)}." if located else ""
    return f"not all is explained{left}.{place}"


def tried_text(each: Tried, sides: tuple[str, str]) -> str:
    """What came of one suspect, as soon as it is known."""
    if each.outcome in ("the cause", "a part"):
        return f"sure: {each.cause} is {each.outcome}: {_proof(each, sides)}"
    if each.outcome == "located":
        return f"sure: the cost is in {each.cause}: {_proof(each, sides)}"
    return f"{each.cause}: {each.outcome}, in {count_text(each.blocks, 'block')}."


def _times_interval(found: Comparison) -> str:
    found = found.in_time()
    if found.low is None or found.high is None:
        return ""
    ends = [f"{_times(end)}x" if abs(found.effect or 0) >= 0.5 else f"{end:+.1%}" for end in (found.low, found.high)]
    return f"[{ends[0]}, {ends[1]}]"


def _only_together(each: Tried, other: str) -> str:
    """Where putting it on the other side brings nothing, it costs only beside something else."""
    brought = None if each.brought is None else each.brought.in_time()
    if brought is None or brought.high is None or each.removed is None or brought.high >= brought.margin:
        return "."
    return f"; added to {other} it costs nothing, so it is the combination with something else that does."


def _ratio(left: Comparison) -> str:
    left = left.in_time()
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
