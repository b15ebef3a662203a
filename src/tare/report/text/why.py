"""The container's weight as text: one line a layer, with its interval, its word and the counters that moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tare.analysis.model import Comparison
from tare.analysis.why import Calls, LayerCalls, LayerCost, Moved, Waterfall
from tare.base.text import effect_text, metric_name, quantity_text, share_text
from tare.report.columns import table, wrap
from tare.report.figure import in_words
from tare.report.text.verdict import effect_of, interval_of, medians_of, noise_text, verdict_phrase, verdict_word

_HEADS = ("layer", "adds", "interval", "verdict", "without it", "counters that moved")

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
    head = f"{metric_name(found.metric)}: bare {bare}, whole container {whole}: {effect_of(found.total)}"
    lines = wrap(f"{head} {interval_of(found.total)} {verdict_phrase(found.total)}", width, indent="  ")
    counted = calls if calls is not None and calls.layers else None
    heads = (*_HEADS[:-1], f"system calls{_per(counted.metric)}", _HEADS[-1]) if counted else _HEADS
    lines += ["", table([_row(layer, counted) for layer in found.layers], heads, width), ""]
    if calls is not None:
        lines += wrap(calls.missing or _TRACED, width, indent="  ")
    for sentence in (*_answer(found), *(f"not looked at: {layer_name(name)}: {why}" for name, why in skipped.items())):
        lines += wrap(sentence, width, indent="  ")
    return "\n".join(lines)


def layer_name(layer: str) -> str:
    """A layer for people; several that were put on together are named together."""
    return " + ".join(_ABOUT.get(part, part) for part in layer.split("+"))


def nothing_text(total: Comparison, width: int) -> str:
    """Said when the whole weighs nothing: there is no layer to look for."""
    sentence = (
        f"The whole container is {verdict_phrase(total)} to bare metal ({effect_of(total)} {interval_of(total)}): "
        "there is no cost to break down, so the layers were not run. --layers runs them anyway."
    )
    return "\n".join(wrap(sentence, width))


def moved_text(one: Moved) -> str:
    if isinstance(one.before, str) or isinstance(one.after, str):
        return f"{one.name} {one.before} to {one.after}"
    before, after = quantity_text(one.name, one.before), quantity_text(one.name, one.after)
    change = "" if one.share is None else f" ({share_text(one.share)})"
    return f"{metric_name(one.name)} {before} to {after}{change}"


def _row(layer: LayerCost, counted: Calls | None) -> tuple[str, ...]:
    moved = "; ".join(moved_text(one) for one in layer.moved)
    calls = (_calls(counted.of(layer.layer)),) if counted else ()
    return layer_name(layer.layer), *_cells(layer.added), _kept(layer.kept), *calls, moved


def _calls(found: LayerCalls | None) -> str:
    """With the layer, and by how much more than without it."""
    if found is None:
        return ""
    change = "" if found.share is None else f" ({effect_text(found.share)})"
    return f"{found.with_it:,.0f}{change}" if found.with_it >= 100 else f"{found.with_it:.1f}{change}"


def _per(metric: str) -> str:
    return " per step" if metric.endswith("_step") else ""


def _cells(found: Comparison | None) -> tuple[str, str, str]:
    return ("", "", "") if found is None else (effect_of(found), interval_of(found), verdict_word(found))


def _kept(found: Comparison | None) -> str:
    """What the whole has more than the same without the layer."""
    return "" if found is None else f"{effect_of(found)} {verdict_word(found)}"


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
