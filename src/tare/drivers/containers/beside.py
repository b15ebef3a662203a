"""The containers that one of a compose file or a pod needs: started once, waited for, and removed at the end.

They have a network of their own, which leads nowhere outside unless that is allowed, and none of their project's names,
ports, labels and restart policies. What they write to is a copy, as for the container that is asked about.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tare.base import processes
from tare.base.errors import StudyError, TareError
from tare.base.files import make_folders, replace_file, state_dir
from tare.base.host import Host
from tare.drivers.containers import own
from tare.drivers.containers.client import LABEL, labels
from tare.drivers.containers.line import Line, parsed
from tare.drivers.containers.specs import Member, Spec, shared_folders
from tare.drivers.places import comes_true

_STARTS_WITHIN_S = 60.0
_READY_WITHIN_S = 180.0
_LOOKS_EVERY_S = 0.2


def name_of(text: str) -> str:
    """The same for the same specification, so that a search that goes on finds the sides that it had."""
    return f"tare-beside-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@contextmanager
def started(host: Host, spec: Spec, name: str, allow: Collection[str], say: Callable[[str], None]) -> Iterator[str]:
    """What the container that is asked about joins as its network; empty where it needs nobody."""
    shared = shared_below(name)
    if not spec.beside:
        try:
            _make_shared(spec, shared)
            yield ""
        finally:
            host.run(["rm", "-rf", "--", str(shared)])
        return
    lines = [parsed(member.words, host) for member in spec.beside]
    engine = lines[0].engine
    processes.lease_name(name)
    note = own.note_of(name)
    make_folders(note.parent)
    replace_file(note, json.dumps(engine).encode())
    with tempfile.TemporaryDirectory(prefix="tare-beside-") as folder:
        try:
            _make_shared(spec, shared)
            own.remove(host, engine, name)  # of a run that was killed
            closed = [] if "network" in allow else ["--internal"]
            host.run([*engine, "network", "create", *closed, f"--label={LABEL}={name}", name]).checked()
            joins = name
            for number, (member, line) in enumerate(zip(spec.beside, lines, strict=True)):
                say(f"beside it: {member.name}, until it is {member.wait}: {line.shown()}")
                _start(host, line, member, f"{name}-{number}", name, joins, allow, f"{folder}/{number}")
                joins = (
                    f"container:{name}-{number}"
                    if spec.is_pod and member.wait == "started" and joins == name
                    else joins
                )
            yield joins
        finally:
            own.remove(host, engine, name)
            host.run(["rm", "-rf", "--", str(shared)])
            note.unlink(missing_ok=True)


def _make_shared(spec: Spec, shared: Path) -> None:
    for path in shared_folders(spec, str(shared)):
        make_folders(Path(path))
        Path(path).chmod(0o1777)


def shared_below(name: str) -> Path:
    """Where the empty folders lie that the containers of a pod share."""
    return state_dir() / "shared" / name


def _start(
    host: Host, line: Line, member: Member, its_name: str, group: str, joins: str, allow: Collection[str], folder: str
) -> None:
    seen = own.look_at(host, line, allow)
    shared = shared_below(group)
    seen = replace(seen, mounts=tuple(each for each in seen.mounts if not each.source.startswith(f"{shared}/")))
    if refused := own.refusals(line, seen, allow):
        raise StudyError("\n".join([f"{member.name}, which is needed beside it:", *refused, "Nothing was run."]))
    line = own.bounded(line if "volumes" in allow else own.on_copies(host, line, seen, folder), ())
    words, at = line.words("create"), len(line.engine) + 1
    alias = [] if joins.startswith("container:") else [f"--network-alias={member.name}"]
    marks = [f"--label={key}={value}" for key, value in labels(group).items()]
    ours = [f"--name={its_name}", *marks, f"--network={joins}", *alias]
    host.run([*words[:at], *ours, *words[at:]], limit_s=own.MADE_WITHIN_S).checked()
    host.run([*line.engine, "start", its_name], limit_s=_STARTS_WITHIN_S).checked()
    if not comes_true(host.clock, lambda: _is_ready(host, line, its_name, member), _READY_WITHIN_S, _LOOKS_EVERY_S):
        raise TareError(
            f"{member.name} was not {member.wait} within {_READY_WITHIN_S:.0f} s.{_last(host, line, its_name)}"
        )


def _is_ready(host: Host, line: Line, name: str, member: Member) -> bool:
    state = own.inspected(host, line.engine, name)["State"]
    runs = state.get("Status") in ("running", "restarting", "created")
    if not runs and (member.wait != "completed" or state.get("ExitCode")):
        raise TareError(f"{member.name} ended with code {state.get('ExitCode')}.{_last(host, line, name)}")
    if member.wait == "healthy":
        return (state.get("Health") or {}).get("Status") == "healthy"
    return not runs if member.wait == "completed" else state.get("Status") == "running"


def _last(host: Host, line: Line, name: str) -> str:
    printed = host.run([*line.engine, "logs", "--tail", "3", name])
    looks = (own.inspected(host, line.engine, name)["State"].get("Health") or {}).get("Log") or [{}]
    text = " ".join(f"{printed.out} {printed.err} {looks[-1].get('Output', '')}".split())
    return f" It printed: {text[-300:]}" if text else ""
