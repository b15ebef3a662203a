"""The study that a claim scale_names can decide it, at every scale or at the one that it scale_names."""

from dataclasses import replace
from functools import cache

import pytest
from ruamel.yaml import YAML

from paper_results import DEVICE, at_scales, every_metric, held, with_records
from tare.api.running import built_in
from tare.papers.claims import metrics
from tare.papers.claims.deciding import answers, every_claim
from tare.papers.claims.model import NOT_MEASURED
from tare.studies.reader import scale_names
from tare.studies.yaml import parse

ACROSS = ("s3.devices-vary-little", "s3.software-varies-a-lot")  # several devices, or sets of software, decide these
EPOCHS = ("s3.epochs-vary-little",)  # from the times of epochs, which made-up trials do not have
HOST_CORES = 80
FIGURES = tuple(
    name for each in vars(metrics).values() if isinstance(each, tuple) for name in each if isinstance(name, str)
)


@cache
def measured(study: str, scale: str):
    """Made-up trials of the study on a device that has whatever it asks for; a hard disk is slow, and is felt."""
    store = held(study, scale, blocks=2, metrics=sorted({*every_metric(), *FIGURES}))
    records = [replace(each, metrics=_figures(each), facts={**each.facts, **_facts(each)}) for each in store.records]
    asked = YAML(typ="safe").load(built_in()[study])["compare"]
    return replace(with_records(store, records), study={**store.study, "compare": {**asked, "margin": "5%"}})


def _facts(record):
    board = {"board": "Raspberry Pi 4 Model B"} if record.study == "s4-platforms" else {}
    host = record.settings.get("control.power_mode.cores") or HOST_CORES
    used = record.settings.get("platform.cores") or host - (record.settings.get("platform.leave_idle") or 0)
    device = {**DEVICE, **board, "cores": HOST_CORES, "memory_bytes": 512 << 30, "cpu.socket": "0-39"}
    return {"device": device, "place": {"usable_cores": used, "host_cores": host}}


def _figures(record):
    slow = 1.5 if record.settings.get("control.storage.emulate") == "hdd" else 1.0
    every_epoch = record.settings.get("control.page_cache.state") == "cold_every_epoch"
    hidden = 0.01 if (record.settings.get("workload.workers") or 0) > 0 else 1.0
    return {
        name: value
        * (slow if every_epoch or name.startswith("epoch0_") else 1.0)
        * (hidden if "stall" in name else 1.0)
        for name, value in record.metrics.items()
    }


@cache
def scales(study: str) -> list[str]:
    """By name: to read each study at each of them took a second of every worker."""
    return scale_names(parse(built_in()[study].read_text())[0]) or [""]


CASES = [
    (claim, scale)
    for claim in every_claim()
    if claim.id not in (*ACROSS, *EPOCHS)
    for scale in scales(claim.study)
    if scale == claim.scale or (not claim.scale and scale != "smoke")
]


@pytest.mark.parametrize(("claim", "scale"), CASES, ids=[f"{claim.id}-{scale}" for claim, scale in CASES])
def test_the_study_that_a_claim_names_measures_it(claim, scale):
    (found,) = answers([claim], [measured(claim.study, scale)])

    assert found.word != NOT_MEASURED, found.why


def test_a_claim_that_takes_a_scale_says_so_in_its_command():
    taking = [claim for claim in every_claim() if claim.scale]
    assert taking
    for claim in taking:
        assert claim.scale in at_scales(claim.study)
        assert claim.command == f"tare run {claim.study} --scale {claim.scale}"
