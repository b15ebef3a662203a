"""What a plan guesses that its trials take, held against what kept studies took."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.parts.protocols import Machine
from tare.parts.workloads.command import Command
from tare.parts.workloads.inference import TorchInfer
from tare.plan.guesses import guessed_cell_s
from tare.plan.matrix import cells, trials
from tare.records.model import Record
from tare.records.store import Store
from tare.records.unpack import each_pack_once
from tare.studies.load import from_plain

KEPT = sorted((Path(__file__).parents[3] / "studies-results").glob("*/*.tare"))


def taken_s(records: list[Record]) -> float:
    """Without what passed between trials; of sides that took turns, once."""
    total_ns = end_ns = 0
    for record in sorted(records, key=lambda record: record.start_ns):
        total_ns += max(0, record.end_ns - max(end_ns, record.start_ns))
        end_ns = max(end_ns, record.end_ns)
    return total_ns / 1e9


@pytest.mark.parametrize("pack", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_kept_study_took_about_as_long_as_its_plan_guesses(pack):
    with each_pack_once(), Store.open(pack) as store:  # the first: without writing its series out
        plain = {name: value for name, value in store.study.items() if name != "design"}  # some were of an older tare
        records, study = store.records(), from_plain(plain)
    machine = Machine(records[0].facts["device"]["cores"], big_gpu=pack.parent.name == "h200")
    planned = trials(study, cells(study))
    guessed_s = sum(guessed_cell_s(study, trial.cell, machine) for trial in planned) / len(planned) * len(records)
    assert 0.5 < guessed_s / taken_s(records) < 2


def guess(platform: dict, tenants: int = 1) -> float:
    study = from_plain({
        "study": "guess", "platform": {"runc": platform}, "tenants": tenants,
        "workload": {"torch_train": {"model": "resnet18", "threads": "quota", "steps_per_epoch": 20}},
    })  # fmt: skip
    (cell,) = cells(study)
    return guessed_cell_s(study, cell, Machine(16))


def test_pinned_cores_are_as_few_as_a_quota_and_tenants_with_their_own_do_not_add_up():
    assert guess({"cpuset": "0"}) == guess({"cores": 1}) > 2 * guess({})
    assert guess({"cores": 8, "pin": True}, tenants=2) == pytest.approx(guess({"cores": 8, "pin": True}), rel=0.05)


def test_a_bound_and_a_rate_are_known_beforehand():
    assert Command(argv=("true",), minutes=3).guessed_s(Machine()) == 180
    assert TorchInfer(requests=100, warm_up=0, rate="2/s").guessed_s(Machine(cores=8)) > 50
