"""`tare show STORE energy` and `tare device baseload` as a user types them; energy in the verbs that choose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

from metered import BARE, DOCKER, Place, idle_trials, kept, trials
from some_records import MEMORY
from tare.analysis.observations import baseload_folder
from tare.api.running import too_short
from tare.base.errors import ObstacleError, StudyError
from tare.cli import tare as verbs
from tare.cli.device.baseload import _baseload, _states
from tare.parts.controls.power import Dvfs
from tare.plan.matrix import cells
from tare.studies.load import from_plain

MODES = [
    Place({"platform": "bare", "control.power_mode.cores": cores, "control.power_mode.gpu_mhz": mhz,
           "workload.model": model}, idle_w=10 + mhz / 200, step_s=size * (0.02 + 0.08 * 1300 / mhz) / cores**0.2,
          work_j=size * (1 + (mhz / 1000) ** 2))
    for model, size in (("lenet5", 1.0), ("resnet18", 5.0))
    for cores in (2, 4, 8)
    for mhz in (300, 600, 900, 1300)
]  # fmt: skip


def tare(*words: str) -> str:
    done = CliRunner().invoke(verbs, list(words), standalone_mode=False, catch_exceptions=True)
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(dir=MEMORY) as made:
        yield Path(made)


@pytest.fixture(scope="module")
def store(folder: Path) -> Path:
    study = {"study": "weigh", "compare": {"by": "platform", "against": {"platform": "bare"}}}
    root = kept(folder / "weigh", trials(BARE, DOCKER), study)
    kept(baseload_folder(root), idle_trials(BARE, DOCKER))
    return root


@pytest.fixture(scope="module")
def modes(folder: Path) -> Path:
    root = kept(folder / "modes", trials(*MODES, n=6), {"study": "modes"})
    kept(baseload_folder(root), idle_trials(*MODES[:12], n=1))
    return root


def test_energy_says_what_it_is_made_of(store):
    said = json.loads(tare("show", "energy", str(store), "--json"))
    assert [cell["label"] for cell in said["cells"]] == ["bare", "docker"]
    (difference,) = said["differences"]
    parts = [difference[name]["value"] for name in ("longer", "idle", "work")]
    assert sum(parts) == pytest.approx(difference["total"]["value"])
    assert [each["label"] for each in said["idle"]] == ["bare", "docker"]
    assert "because it ran longer" in tare("show", "energy", str(store)).replace("\n  ", " ")


def test_energy_against_another_level(store):
    (difference,) = json.loads(tare("show", "energy", str(store), "--against", "docker", "--json"))["differences"]
    assert difference["level"] == "bare"
    assert difference["total"]["value"] < 0
    with pytest.raises(StudyError, match="No level 'dokcer'"):
        tare("show", "energy", str(store), "--against", "dokcer")


def test_compare_takes_energy_a_step_from_trials(store):
    said = json.loads(tare("compare", str(store), "--metric", "energy_step_j", "--json"))
    assert said["comparisons"][0]["effect"] == pytest.approx(0.14, abs=0.02)
    told = tare("compare", str(store), "--metric", "energy_step_j")
    assert "]  more\n" in told, "joules are not slower"
    assert "energy per step" in tare("compare", str(store), "-v"), "energy is told beside the time"


def test_pareto_takes_energy_from_trials_by_itself(modes):
    fronts = json.loads(tare("choose", "front", str(modes), "--group", "workload.model", "--json"))["fronts"]
    assert len(fronts) == 2
    assert fronts[0]["minimised"] == ["step_s", "energy_step_j"]


def test_predict_takes_energy_from_trials(modes):
    words = ["--features", "cores,gpu_mhz", "--columns", "time=step_s,energy=energy_step_j"]
    words += ["--group", "workload.model", "--at", "cores=4,gpu_mhz=700"]
    said = json.loads(tare("choose", "predict", str(modes), *words, "--json"))["predictions"]
    light = next(each for each in said if each["group"] == "lenet5")
    (mode,) = [each for each in light["modes"] if not each["measured"]]
    beside = (MODES[4], MODES[6])  # 4 cores, at 300 and at 900 MHz
    least, most = sorted(place.idle_w * place.step_s + place.work_j for place in beside)
    assert 0.8 * least < mode["energy"]["value"] < 1.2 * most


def test_recommend_holds_a_power_cap_against_measured_power(modes):
    words = ["--power-cap", "30W", "--minimise", "time", "--group", "workload.model"]
    assert "power cap, 30.0 W" in tare("choose", "recommend", str(modes), *words)
    with_power = json.loads(tare("show", "energy", str(modes), "--by", "gpu_mhz", "--json"))["cells"]
    assert any(cell["figures"]["power_mean_w"]["value"] > 30 for cell in with_power), "or the cap would bind nothing"


def test_claims_take_energy_and_baseload_from_trials(modes, store):
    found = {
        each["id"]: each for each in json.loads(tare("papers", "claims", str(modes), str(store), "--json"))["claims"]
    }
    for claim in ("s3.baseload-dominates-light-models", "s3.energy-is-harder-to-predict", "s0.total-energy-rises"):
        assert found[claim]["word"] != "not measured", found[claim]
    assert found["s0.total-energy-rises"]["word"] == "holds here"
    rise = found["s0.energy-rise-is-baseload"]
    assert (rise["word"], rise["n"] > 0) == ("holds here", True), rise


# tare device baseload


def study(**more):
    plain = {
        "study": "modes",
        "platform": ["bare", "docker"],
        "workload": {"torch_train": {"batch": [16, 64]}},
        "control": {"page_cache": ["cold", "warm"], "cpu": [{"online": "0"}, {"online": "0-1"}]},
        "probes": ["cpu", {"external": {"command": ["meter"]}}],
        "tenants": [1, 2],
        "period": "50 ms",
        **more,
    }
    return from_plain(plain, "test")


def test_a_baseload_has_every_platform_and_mode_of_the_study_and_nothing_to_do():
    made = from_plain(_baseload(study(), 60.0, 6), "test")
    found = [cell.settings for cell in cells(made)]
    assert len(found) == 4
    assert {each["workload"] for each in found} == {"idle"}
    assert {each["platform"] for each in found} == {"bare", "docker"}
    assert not [name for each in found for name in each if name.startswith("control.page_cache")]
    assert (made.period_s, made.repeat.min, made.repeat.max) == (0.05, 6, 6)


def test_what_the_study_excludes_of_platforms_and_modes_the_baseload_does_too():
    excluded = [{"platform": "docker", "control.cpu.online": [0]}, {"workload.batch": 64, "platform": "bare"}]
    made = from_plain(_baseload(study(exclude=excluded), 60.0, 6), "test")
    assert len(cells(made)) == 3


@pytest.mark.parametrize("missing", ["refuse", "leave_out"])
@pytest.mark.parametrize("make", [_baseload, _states])
def test_what_the_study_may_leave_out_its_baseload_may_too(make, missing):
    assert from_plain(make(study(missing=missing), 60.0, 6), "test").missing == missing


def test_limits_of_a_workload_make_no_idle_device_of_their_own():
    limited = [{"bare": {"cores": [2, 4], "pin": True}}, {"docker": {"quota": 1.0, "image": "pt"}}, "bare"]
    excluded = [{"platform": "docker", "platform.quota": 1.0, "control.cpu.online": [0]}]
    made = from_plain(_baseload(study(platform=limited, exclude=excluded), 60.0, 6), "test")
    found = [cell.settings for cell in cells(made)]
    assert sorted((each["platform"], each.get("platform.image")) for each in found) == [
        ("bare", None), ("bare", None), ("docker", "pt"), ("docker", "pt"),
    ]  # fmt: skip


def test_idle_states_are_a_study_of_logging_and_dvfs(monkeypatch):
    monkeypatch.setattr(Dvfs, "obstacles", lambda self, host: [])
    found = [cell.settings for cell in cells(from_plain(_states(study(), 60.0, 6), "test"))]
    assert {(each["workload.logging"], each["control.dvfs.state"]) for each in found} == {
        (False, "on"), (False, "off"), (True, "on"), (True, "off"),
    }  # fmt: skip
    assert {each["platform"] for each in found} == {"bare"}


def test_where_dvfs_cannot_be_switched_logging_alone_is_varied_and_it_is_said(monkeypatch, capsys):
    monkeypatch.setattr(Dvfs, "obstacles", lambda self, host: ["dvfs: there are no clocks."])
    found = [cell.settings for cell in cells(from_plain(_states(study(), 60.0, 6), "test"))]
    assert {each["workload.logging"] for each in found} == {False, True}
    assert len(found) == 2
    assert "dvfs: there are no clocks." in capsys.readouterr().err


def test_without_a_power_probe_nothing_is_run_and_it_is_said_what_would_help(tmp_path):
    text = "study: blind\nplatform: bare\nworkload: torch_train\nprobes: [cpu, memory]\n"
    (tmp_path / "blind.yaml").write_text(text)
    with pytest.raises(ObstacleError, match="no power probe is enabled in blind") as refused:
        tare("device", "baseload", str(tmp_path / "blind.yaml"), "-o", str(tmp_path / "store"))
    assert "power_rapl" in str(refused.value)
    assert not (tmp_path / "store-baseload").exists()


@pytest.mark.parametrize("duration", ["0s", "-3s", "soon", "2d", "1e9s"])
def test_a_duration_that_is_none_is_refused(duration):
    done = CliRunner().invoke(verbs, ["device", "baseload", "x.yaml", "--duration", duration])
    assert done.exit_code == 2
    assert "--duration" in done.output


@pytest.mark.parametrize(
    ("probes", "duration", "least"),
    [
        ("[cpu, {external: {command: [meter]}}]", "9s", "external takes at least 10 s, not 9 s"),
        ("[power_rails]", "5s", "power_rails takes at least 6 s, not 5 s"),
        ("[{power_rails: {period: 1s}}]", "50s", "power_rails takes at least 60 s, not 50 s"),
        ("[power_rapl]", "0.5s", "power_rapl takes at least 1 s, not 0.5 s"),
    ],
)
def test_a_duration_of_which_no_sensor_can_make_an_energy_is_refused_before_anything_runs(
    tmp_path, probes, duration, least
):
    (tmp_path / "short.yaml").write_text(f"study: short\nplatform: bare\nworkload: torch_train\nprobes: {probes}\n")
    with pytest.raises(StudyError, match=least):
        tare("device", "baseload", str(tmp_path / "short.yaml"), "--duration", duration, "-o", str(tmp_path / "store"))
    assert not (tmp_path / "store-baseload").exists()


def test_one_sensor_that_can_is_enough():
    probes = ["power_rapl", {"external": {"command": ["meter"]}}]
    assert too_short(study(probes=probes), 2.0) == []
    assert len(too_short(study(probes=probes), 0.1)) == 2


def test_a_store_that_is_none_is_refused(tmp_path):
    with pytest.raises(Exception, match="store"):
        tare("device", "baseload", str(tmp_path))
    with pytest.raises(Exception, match="store"):
        tare("show", "energy", str(tmp_path))


def test_a_trial_that_a_later_attempt_made_up_for_counts_once(tmp_path):
    records = trials(BARE, n=6)
    again = [replace(records[0], attempt=1, state="invalid"), *records]
    root = kept(tmp_path / "again", again)
    (cell,) = json.loads(tare("show", "energy", str(root), "--json"))["cells"]
    assert cell["n"] == 6
