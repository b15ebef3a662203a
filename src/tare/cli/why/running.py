"""`tare why --attach CONTAINER` or PID: what may slow down a program that runs, without a run of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tare.base.host import LocalHost
from tare.base.text import count_text, share_text, time_text
from tare.cli.scaffold import Option, print_json, say, width

if TYPE_CHECKING:
    from tare.analysis.why.running import Found

_LEAST_TOLD = 0.05  # of the time: a wait of the first thread that is worth a line


LOOK_S = 30.0  # where nobody says how long to look

attach_option: Option = click.option(
    "--attach", "attached", metavar="CONTAINER|PID",
    help="Look at a running container, by name or ID, or at a process with all that it started.",
)  # fmt: skip


def explain_running(attached: str, seconds: float, as_json: bool) -> None:
    """Look, judge, and say what would prove it."""
    from tare.analysis.why.running import suspects
    from tare.drivers.containers import running
    from tare.parts.knowledge import costly_variables

    host = LocalHost()
    # The ID of a container has twelve digits or more, and the number of a process at most seven.
    is_process = attached.isdecimal() and len(attached) <= 7
    target = running.of_pid(int(attached)) if is_process else running.of_container(host, attached)
    say(f"looking at {target.name} for {seconds:g} s: nothing is started in it, and nothing of it is changed.")
    seen = asdict(running.look(host, target, seconds))
    found = suspects(seen, costly_variables("allocator", "debug_variables"))
    line = running.line_text(target)
    if as_json:
        print_json({"target": target.name, **seen, "suspects": [asdict(each) for each in found], "proof": line})
        return
    for text, hanging in _told(target.name, seen, found):
        click.echo(click.wrap_text(text, width(), subsequent_indent=" " * hanging))
    if line:
        click.echo("To prove a suspect, and to see what its change takes away:")
        click.echo(line)


def _told(name: str, seen: dict[str, Any], found: list[Found]) -> Iterator[tuple[str, int]]:
    """Sentences, and by how much their further lines are indented."""
    facts, seconds = seen["facts"], seen["seconds"]
    cores = (seen["spent"].get("user", 0.0) + seen["spent"].get("system", 0.0)) / seconds
    yield (
        f"{name}: {count_text(facts['processes'], 'process', 'processes')} with "
        f"{count_text(facts['threads'], 'thread')} used {cores:.2f} of {facts['cores']} cores, in {seconds:.0f} s.",
        2,
    )
    for number, each in enumerate(found, 1):
        share = f" (at most {share_text(each.share).lstrip('+')} of the time)" if each.share else ""
        yield f"{number}. Suspect (not proved): {each.name}{share}: {each.evidence}", 3
        yield f"   Try: {each.change}", 3
    if not found:
        yield "No suspect: nothing that was looked at is near a limit, or waits for more than a little.", 2
    waits = sorted(seen["waits"].items(), key=lambda pair: -pair[1])
    if told := [f"{at} ({time_text(spent)})" for at, spent in waits[:3] if spent >= _LEAST_TOLD * seconds]:
        yield f"Where its first thread waited in the kernel: {', '.join(told)}.", 2
    if seen["stack"]:
        yield f"What it was at, the innermost function first: {'; '.join(seen['stack'][:5])}.", 2
    for what, why in seen["unseen"].items():
        yield f"Not looked at: {what}: {why}", 2
