"""S0's withdrawn result: what the container costs in whole, and layer by layer, with what each run could have seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.cells import text
from tare.analysis.papers.machines import Held, Machine
from tare.analysis.papers.model import Change, Row
from tare.analysis.papers.rows import Answered, Ours
from tare.analysis.request import request
from tare.analysis.why import Waterfall, waterfall
from tare.errors import TareError
from tare.records.model import USABLE, Record

PAPER = "S0"
WHOLE = "s0-container-tax"
TAKEN_APART = ("why-layers", "why-total")  # what `tare why` calls its studies; the first that was kept
_COMPUTE = ("compute_s", "inference_s")
_NAMED_BY = ("workload", "workload.model", "workload.argv")  # settings that say what was run


@dataclass(frozen=True)
class Layers:
    """One machine: the whole container with each workload, and one workload's container taken apart."""

    machine: str
    whole: Mapping[str, Ours]  # quantity -> ours
    apart: Waterfall | None
    store: str = ""
    why: str = ""  # there is nothing taken apart
    workload: str = ""  # whose container was taken apart: "torch_train lenet5"

    def as_json(self) -> dict[str, Any]:
        apart = None if self.apart is None else self.apart.as_json()
        whole = {quantity: ours.as_json() for quantity, ours in self.whole.items()}
        return {"whole": whole, "apart": apart, "store": self.store, "why": self.why, "workload": self.workload}


def layers(found: Answered) -> list[Layers]:
    """Every machine, from the rows of the table and from a store of `tare why`."""
    return [_of_machine(found, machine) for machine in found.machines]


def _of_machine(found: Answered, machine: Machine) -> Layers:
    whole = {row.quantity: found.rows[row.id][machine.name] for row in found.paper.rows if _is_whole(row)}
    held = next((held for study in TAKEN_APART for held in machine.of(study)), None)
    if held is None:
        return Layers(machine.name, whole, None, why="`tare why` was not run, or its store was not kept")
    try:
        return Layers(machine.name, whole, _apart(held), held.name, workload=_workload(held.records))
    except TareError as error:
        return Layers(machine.name, whole, None, held.name, str(error))


def _apart(held: Held) -> Waterfall:
    return waterfall(held.records, margin=request(held.source.study).margin)


def _workload(records: Sequence[Record]) -> str:
    """`torch_train lenet5`, or the command of the user's own."""
    settings: Mapping[str, Any] = next((record.settings for record in records if record.state in USABLE), {})
    said = [settings[name] for name in _NAMED_BY if settings.get(name) is not None]
    return " ".join(" ".join(map(str, each)) if isinstance(each, list | tuple) else text(each) for each in said)


def _is_whole(row: Row) -> bool:
    """Whether a row is about the compute of a workload, in a container and without."""
    first = row.ours[0] if row.ours else None
    return isinstance(first, Change) and first.study == WHOLE and set(first.metric) <= set(_COMPUTE)
