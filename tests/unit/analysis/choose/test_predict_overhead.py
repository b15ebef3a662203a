"""A law of the overhead itself, by cores: known laws are found again, and what cannot be known is not claimed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from metered import kept
from some_records import draft
from tare.analysis.choose.overhead import overheads
from tare.base.errors import StudyError
from tare.cli import tare as verbs

CORES = (4, 8, 16, 32, 64)
KEPT = Path(__file__).parents[4] / "studies-results" / "cpu2" / "s4-scale-up.tare"


def by_cores(law, cores=CORES, blocks=6, noise=0.01, seed=1, stack=False):
    """Bare metal gets faster with cores; the other platform costs what the law says; each block is slower."""
    rng = np.random.default_rng(seed)
    made = []
    for block in range(blocks):
        for count in cores:
            for platform in ("bare", "qemu+docker" if stack else "docker"):
                log = law(count) if platform != "bare" else 0.0
                seconds = (1 + 40 / count) * (1 + block / 20) * math.exp(log + rng.normal(0, noise))
                name = "platform.0.qemu.cores" if "+" in platform else "platform.cores"
                settings = {"platform": platform, "workload": "application", name: count}
                one = draft(f"{platform.replace('+', '-')}-{count}-{block}", block=block, settings=settings)
                made.append(replace(one, attempt=1, state="ok", metrics={"step_mean_s": seconds}))
    return made


def store_of(root: Path, records):
    return kept(root, records, {"study": "s4", "compare": {"by": "platform"}})


@pytest.mark.parametrize(
    ("law", "form"),
    [
        (lambda cores: 0.02 + 1.2 / cores, "b / {}"),  # S4: falls with the share of the host's cores
        (lambda cores: 0.30 - 0.05 * math.log(cores), "b log {}"),
        (lambda cores: 0.05, ""),
    ],
)
def test_a_known_law_is_found_and_predicts_a_number_of_cores_that_was_not_measured(tmp_path, law, form):
    root = store_of(tmp_path / "s", by_cores(law, noise=0.001))
    (found,) = overheads(root, ["cores"], "step_mean_s", "bare", at=[{"cores": 12}])
    assert (found.level, found.against) == ("docker", "bare")
    if form:
        assert found.form == form
    ((mode, estimate),) = found.predictions
    assert mode == (12.0,)
    assert estimate.value == pytest.approx(math.expm1(law(12)), abs=0.005)
    assert found.error is not None and found.error < 0.005
    assert [each.overhead for each in found.modes] == pytest.approx([math.expm1(law(c)) for c in CORES], abs=0.003)


def test_its_intervals_hold_what_they_say(tmp_path):
    def law(cores: float) -> float:
        return 0.02 + 1.2 / cores

    inside = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = [
            f"{platform},{cores},{(1 + 40 / cores) * math.exp((law(cores) if platform == 'vm' else 0.0) + noise)}"
            for platform in ("bare", "vm")
            for cores in CORES
            for noise in rng.normal(0, 0.01, 4)
        ]
        path = tmp_path / f"{seed}.csv"
        path.write_text("\n".join(["platform,cores,step_s", *rows]))
        (found,) = overheads(path, ["cores"], "step_s", "bare", at=[{"cores": 12}])
        ((_, estimate),) = found.predictions
        inside += estimate.low <= math.expm1(law(12)) <= estimate.high
    assert inside >= 32  # of 40 with 90 %: fewer has a chance below 2 %


def test_a_container_in_a_machine_has_the_cores_of_the_machine(tmp_path):
    root = store_of(tmp_path / "s", by_cores(lambda cores: 0.1, stack=True))
    (found,) = overheads(root, ["cores"], "step_mean_s", "bare")
    assert found.level == "qemu+docker" and len(found.modes) == 5


def test_two_modes_make_a_line_and_no_error_is_claimed(tmp_path):
    root = store_of(tmp_path / "s", by_cores(lambda cores: 1 / cores, cores=(1, 2)))
    (found,) = overheads(root, ["cores"], "step_mean_s", "bare", at=[{"cores": 4}])
    assert (found.error, found.held) == (None, None)
    assert "Three modes or more" in found.notes[0] and "outside of what was measured" in found.notes[1]


def test_the_kept_store_of_s4_has_a_law_for_every_application_and_says_what_it_does_not_know():
    found = overheads(KEPT, ["cores"], "step_mean_s", "bare")
    assert {law.job for law in found} == {"recommendation", "question", "speech", "image"}
    assert all(law.level == "docker" and len(law.modes) == 2 and law.error is None for law in found)
    assert all(each.pairs == 9 for law in found for each in law.modes)


def test_the_command_tells_it_and_has_it_as_json(tmp_path):
    root = store_of(tmp_path / "s", by_cores(lambda cores: 0.02 + 1.2 / cores))
    words = [
        "choose",
        "predict",
        str(root),
        "--features",
        "cores",
        "--columns",
        "time=step_mean_s",
        "--overhead",
        "bare",
    ]
    said = CliRunner().invoke(verbs, [*words, "--at", "cores=12"])
    assert said.exit_code == 0, said.output
    assert "overhead of docker over bare, 5 modes, 30 pairs: log ratio = " in said.output.replace("\n", " ")
    assert "percentage points on average" in said.output and "at cores=12: +" in said.output
    made = json.loads(CliRunner().invoke(verbs, [*words, "--json"]).output)
    assert [each["pairs"] for each in made["overheads"][0]["modes"]] == [6] * 5
    assert made["overheads"][0]["error"] < 0.05


def test_a_table_without_blocks_is_taken_and_mistakes_are_named(tmp_path):
    path = tmp_path / "runs.csv"
    rows = [f"{p},{c},{(1 + 8 / c) * (1.1 if p == 'vm' else 1.0) * k}" for p in ("bare", "vm") for c in (1, 2, 4)
            for k in (0.99, 1.01)]  # fmt: skip
    path.write_text("\n".join(["platform,cores,step_s", *rows]))
    (found,) = overheads(path, ["cores"], "step_s", "bare")
    assert [each.overhead for each in found.modes] == pytest.approx([0.1] * 3, abs=1e-6)
    with pytest.raises(StudyError, match="bare"):
        overheads(path, ["cores"], "step_s", "bear")
    with pytest.raises(StudyError, match="does not say cores"):
        overheads(path, ["cores"], "step_s", "bare", at=[{}])
