"""The `syscalls` table, from a recorded trace."""

from __future__ import annotations

from typing import Any

from tare.traces.decode import pieces
from tare.traces.recording import Recording
from tare.traces.roles import Roles
from tare.traces.syscalls import Pairing, Tally

_KEPT_NS = 10_000_000_000  # a task's past is kept this long, for calls that take long to return


def syscall_columns(recording: Recording, machine: str, bin_ns: int) -> dict[str, Any]:
    """Calls by bin, role and name; memory is bounded by a piece of the trace and by the size of the table."""
    roles, pairing, tally = Roles(recording.roles), Pairing(), Tally(bin_ns)
    for piece in pieces(recording.sources, recording.layout, recording.formats):
        events = {one.format.name: one.columns for one in piece}
        roles.learn(events)
        tally.add(pairing.add(events.get("sys_enter"), events.get("sys_exit")), roles.of)
        last_ns = max((int(columns["t_ns"][-1]) for columns in events.values()), default=0)
        roles.forget_before(last_ns - _KEPT_NS)
    tally.add(pairing.rest(), roles.of)
    return tally.columns(machine)
