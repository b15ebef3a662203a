"""`tare list studies`: each experiment of the papers is a file, and can be planned at each of its scales."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from some_records import run_one
from tare.analysis.selection import request, select
from tare.analysis.weighing import weigh
from tare.api.running import built_in, folder_of, refuse_without_power
from tare.base.errors import ObstacleError, StudyError
from tare.cli import tare as verbs
from tare.cli.report import endings
from tare.papers.claims.deciding import every_claim, papers
from tare.papers.verbs import described
from tare.plan.check import check
from tare.plan.matrix import Trial, cells, trials
from tare.records.model import Record
from tare.records.store import Store
from tare.studies.load import at_every_scale, from_plain
from tare.testing import FakeHost

NAMES = [
    *("s0-container-tax", "s0-power-sensitivity", "s0-phase-breakup", "s0-seccomp", "s0-syscalls", "s0-colocation"),
    *("s0-baseload", "s0-instrumentation", "s3-idle-states", "s4-storage"),
    *("s2-inference", "s3-workers-by-cores", "s4-neighbour"),
    *("s1-workers", "s1-storage", "s1-dataset-scale"),
    *("s2-events", "s2-writebacks", "s2-page-faults", "s2-nvm"),
    *("s3-pipeline", "s3-storage", "s3-batch", "s3-variability", "s3-dvfs", "s3-baseload", "s3-power-modes"),
    *("s3-predict", "s4-platforms", "s4-scale-up", "s4-pinning", "s4-gpu", "s4-idle-core", "s4-microvm"),
]
# At most a minute, ten to twenty-one; a GPU that is lent for half an hour (an H200 takes a third of what is guessed).
MOST_S = {"smoke": 60, "small": 1400, "networks": 6000, "cuda": 4000, "clocks": 4000}
LEAST_S = {"smoke": 5, "small": 120, "networks": 120, "cuda": 120, "clocks": 240}  # others: that of a whole study
WHOLE_S = 1000
FOR_HARDWARE = ("networks", "cuda", "clocks", "agx", "nx", "nano", "edge", "server", "vfio", "suspended")


def tare(*words: str) -> str:
    done = CliRunner().invoke(verbs, list(words), standalone_mode=False, env={"COLUMNS": "80"})
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_each_experiment_of_the_papers_is_a_file() -> None:
    assert sorted(NAMES) == [name for name in built_in() if name[:2] in papers()]


@pytest.mark.parametrize(
    ("name", "scale", "says"),
    [
        ("s0-container-tax", "tiny", "s0-container-tax: No scale 'tiny'. Available: smoke, small, cuda, full."),
        ("s1-workers", "smal", "Did you mean 'small'?"),
        ("stall-anatomy", "small", "stall-anatomy has no scales, and so no scale 'small'. Leave --scale out."),
    ],
)
@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_scale_that_a_study_of_ours_has_not_is_told_without_its_file(
    verb: str, name: str, scale: str, says: str
) -> None:
    with pytest.raises(StudyError) as refused:
        tare(verb, name, "--scale", scale)
    assert says in str(refused.value)
    assert ".yaml" not in str(refused.value)


def test_a_scale_that_a_study_of_ones_own_has_not_is_told_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("study: s\nplatform: bare\nworkload: idle\nscales: {smoke: {repeat: 1}}\n")
    with pytest.raises(StudyError, match=r"mine\.yaml:4: no scale 'tiny' here"):
        tare("plan", str(path), "--scale", "tiny")


def test_each_claim_names_a_study_that_is_there() -> None:
    assert {claim.study for claim in every_claim()} <= set(built_in())


@pytest.mark.parametrize("name", NAMES)
def test_a_study_plans_at_every_scale_within_its_time(name: str) -> None:
    told = described(name, built_in()[name])

    assert [scale for scale in told["scales"] if scale not in FOR_HARDWARE] == [
        "smoke",
        "small",
        "full",
    ]
    for scale, seconds in told["scales"].items():
        most = MOST_S.get(scale, float("inf")) * (2 if name == "s1-dataset-scale" else 1)  # whose data exceed memory
        assert LEAST_S.get(scale, WHOLE_S) <= seconds <= most, scale
    assert told["scales"]["smoke"] < told["scales"]["small"] < told["scales"]["full"]


def test_on_a_gpu_server_every_study_has_blocks_enough_for_an_interval_but_the_one_that_only_predicts() -> None:
    on_gpus = {name: at_every_scale(built_in()[name], trust=True).get("cuda") for name in NAMES}
    few = {name for name, study in on_gpus.items() if study is not None and study.repeat.max < 6}
    assert few == {"s3-predict"}


def test_every_study_has_a_scale_for_a_gpu_server_or_its_file_says_why_not() -> None:
    without = {name for name in NAMES if "cuda" not in at_every_scale(built_in()[name], trust=True)}
    # They change clocks, or are about virtual machines, which have no GPU inside.
    assert without == {"s0-power-sensitivity", "s3-dvfs", "s3-idle-states", "s4-microvm", "s4-neighbour", "s4-storage"}
    for name in without:
        text = built_in()[name].read_text()
        assert "No scale for a GPU server" in text or "no `cuda` scale" in text


@pytest.mark.parametrize("name", NAMES)
def test_what_a_study_compares_can_be_compared_once_it_has_run(name: str) -> None:
    for scale, study in at_every_scale(built_in()[name], trust=True).items():
        if scale == "full":
            continue  # the same question, asked of thousands of trials
        plain, metric = study.as_plain(), str(study.compare.metric)
        done = [
            replace(ended(trial), metrics={metric: 1.0 + trial.block / 10}) for trial in trials(study, cells(study))
        ]
        if len({each.settings.get(str(study.compare.by)) for each in done}) == 1:
            continue  # it asks for something else: how much epochs vary
        selected = select(done, request(plain, done))

        assert selected.against is not None, scale
        assert selected.family(metric), scale


def ended(trial: Trial) -> Record:
    return Record(
        trial.id, 1, trial.study, trial.block, trial.position, trial.twin, dict(trial.settings), "ok"
    )  # fmt: skip


@pytest.mark.parametrize("name", ["s0-container-tax", "s2-writebacks", "s4-platforms"])
def test_the_seconds_are_those_of_the_plan(name: str) -> None:
    told = described(name, built_in()[name])["scales"]

    for scale, study in itertools.islice(at_every_scale(built_in()[name], trust=True).items(), 2):
        assert told[scale] == round(check(study, cells(study), FakeHost()).seconds)


@pytest.mark.parametrize("name", NAMES)
def test_a_study_says_where_it_comes_from_leaves_out_what_cannot_be_and_ends_in_its_claims(name: str) -> None:
    for study in at_every_scale(built_in()[name], trust=True).values():
        assert study.paper == name[:2].upper()
        assert study.section and study.about.endswith("?")
        assert study.missing == "leave_out"
        assert study.ends_in[-1].startswith("papers claims --paper")
        assert all(_is_verb(command.split()[1:]) for command in endings(study.as_plain(), Path("out")))
        assert from_plain(study.as_plain()) == study


def _is_verb(words: list[str]) -> bool:
    """Whether these words are a verb of tare, the store's folder, and options that the verb has."""
    command: click.Command | None = verbs
    while isinstance(command, click.Group):
        _, command, words = command.resolve_command(click.Context(command), words)
    if command is None:
        return False
    command.make_context("verb", list(words))
    return words[0] == "out"


def test_traced_studies_have_as_many_host_processes_as_containers() -> None:
    for name in (each for each in NAMES if each.startswith("s2")):
        for study in at_every_scale(built_in()[name], trust=True).values():
            found = {(cell.settings["platform"], cell.tenants) for cell in cells(study)}
            assert {tenants for platform, tenants in found if platform == "bare"} == {
                tenants for platform, tenants in found if platform == "docker"
            }


def test_the_list_as_json_has_exactly_these_fields() -> None:
    found = json.loads(tare("list", "studies", "--json"))["studies"]

    assert [each["name"] for each in found] == [*built_in()]
    for each in found:
        assert list(each) == ["name", "asks", "paper", "section", "scales"]
        assert all(isinstance(seconds, int) for seconds in each["scales"].values())


def test_the_list_fits_eighty_columns() -> None:
    lines = tare("list", "studies").splitlines()

    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["study", "paper", "smoke", "small", "cuda", "full", "also"]
    assert {line.split()[0] for line in lines[1 : 1 + len(built_in())]} == built_in().keys()
    assert next(line for line in lines if line.startswith("s3-variability")).endswith("  agx, nx, nano")


def test_a_misspelt_scale_is_refused_before_anything_runs() -> None:
    with pytest.raises(StudyError, match="Did you mean 'smoke'"):
        tare("plan", "s0-seccomp", "--scale", "smok")


def test_a_study_without_scales_refuses_a_scale() -> None:
    with pytest.raises(StudyError, match="container-tax has no scales"):
        tare("run", "container-tax", "--scale", "smoke")


def test_a_study_of_energy_is_not_begun_where_nothing_tells_power() -> None:
    plain = {"study": "s", "platform": "bare", "workload": "idle", "compare": {"metric": "power_mean_w"}}

    with pytest.raises(ObstacleError, match="no power probe is enabled in s"):
        refuse_without_power(from_plain({**plain, "probes": ["cpu"]}))
    refuse_without_power(from_plain({**plain, "probes": ["cpu", "power_rapl"]}))
    refuse_without_power(from_plain({**plain, "compare": {"metric": "wall_s"}, "probes": ["cpu"]}))


def test_what_was_left_out_is_said_with_the_verdict(tmp_path: Path) -> None:
    study = {"study": "s", "left_out": ["platform qemu: no qemu."]}
    with Store.create(tmp_path / "store", study, "study: s\n") as store:
        run_one(store)
        said = weigh(store).notes

    assert "not measured here: platform qemu: no qemu." in said


def test_each_scale_has_a_store_of_its_own() -> None:
    at = at_every_scale(built_in()["s0-seccomp"], trust=True)

    assert {scale: str(folder_of(study)) for scale, study in at.items()} == {
        "smoke": "out/s0-seccomp-smoke",
        "small": "out/s0-seccomp-small",
        "cuda": "out/s0-seccomp-cuda",
        "full": "out/s0-seccomp",
    }


def test_endings_become_commands_on_the_store() -> None:
    study = {"ends_in": ["show energy", "papers claims --paper s0", "compare --by platform"]}

    assert endings(study, Path("out/a b")) == [
        "tare show 'out/a b' energy",
        "tare papers claims 'out/a b' --paper s0",
        "tare compare 'out/a b' --by platform",
    ]
    assert endings({}, Path("out")) == []


def test_endings_that_take_energy_are_not_offered_where_there_is_none() -> None:
    front, varied = "choose front --group workload.model", "show variability"
    ends_in = ["show energy", front, varied, f"{varied} --metric energy_epoch_j", "show kernel"]
    fronts = ["choose front --minimise step_s,energy_step_j", "choose front --minimise time_token_s,first_token_s"]

    assert endings({"ends_in": [*fronts, *ends_in]}, Path("out"), metered=False) == [
        "tare choose front out --minimise time_token_s,first_token_s",
        "tare show out variability",
        "tare show out kernel",
    ]
    assert len(endings({"ends_in": ends_in}, Path("out"), metered=True)) == len(ends_in)


def test_one_study_is_explained_with_all_that_it_ends_in() -> None:
    found = json.loads(tare("papers", "studies", "s4-idle-core", "--json"))

    assert list(found) == [
        *("schema_version", "name", "asks", "paper", "section", "scales"),
        *("compares", "claims", "rows", "charts", "commands"),
    ]
    assert {each["id"] for each in found["claims"]} == {
        claim.id for claim in every_claim() if claim.study == "s4-idle-core"
    }
    assert {"4.8a", "4.8b"} <= {each["id"] for each in found["rows"]}  # by its study, and by its claim
    assert found["scales"]["full"]["varies"]["platform.leave_idle"][:3] == [0, 1, 2]
    assert {"docker", "qemu", "KVM", "32 cores", "control power_mode"} <= set(found["scales"]["full"]["needs"])
    assert found["scales"]["smoke"]["needs"] == ["docker"]
    assert found["scales"]["smoke"]["trials"] == 4


def test_one_study_is_explained_to_people_in_eighty_columns() -> None:
    said = tare("papers", "studies", "s0-phase-breakup")

    assert max(map(len, said.splitlines())) <= 80
    for word in ("Which part of a mini-batch", "smoke", "Varies", "Needs", "s0.optimiser-step-grows-most", "0.8 "):
        assert word in said
    assert "forward, backward and optimiser step" in said
    assert "claims it is made for (its store may answer more):" in said


def test_a_study_takes_as_long_in_the_list_as_by_itself() -> None:
    listed = {each["name"]: each["scales"] for each in json.loads(tare("list", "studies", "--json"))["studies"]}
    scales = json.loads(tare("papers", "studies", "llm-container-tax", "--json"))["scales"]

    assert listed["llm-container-tax"] == {scale: each["seconds"] for scale, each in scales.items()}


def test_a_study_that_is_not_there_is_refused_with_its_neighbour() -> None:
    with pytest.raises(StudyError, match="Did you mean 's0-seccomp'"):
        tare("papers", "studies", "s0-secomp")
