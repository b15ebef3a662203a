"""`tare papers tables` as a user types it, on real stores and packs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from paper_results import described, write_store
from some_layers import container
from tare.base.errors import StoreError, StudyError
from tare.cli import tare as verbs
from tare.records.pack import pack
from tare.records.store import Store

TAX = "s0-container-tax"
LENET = {"workload": "torch_train", "workload.model": "lenet5"}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """One machine's store as a folder, and another's as a pack."""
    root = tmp_path_factory.mktemp("results")
    write_store(root / "cpu2" / TAX, TAX, "small", LENET, metrics=["compute_s"])
    (root / "h200").mkdir()
    with Store.open(root / "cpu2" / TAX) as store:
        pack(store, root / "h200" / f"{TAX}.tare")
    return root


def tare(*words: object) -> str:
    done = CliRunner().invoke(verbs, [str(word) for word in words], standalone_mode=False, catch_exceptions=True)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_folders_and_packs_are_read_alike_and_each_machine_is_a_column(results):
    found = json.loads(tare("papers", "tables", "s0", results, "--json"))

    assert set(found) == {"paper", "machines", "rows", "claims", "layers"}
    assert [each["name"] for each in found["machines"]] == ["cpu2", "h200"]
    assert found["machines"][0]["device"] == "Neoverse-N1, 2 cores, 8.00 GiB, kernel 6.18.0"
    row = found["rows"][0]
    assert row["paper"]["numbers"]["bare"] == pytest.approx(0.00391)
    mine, packed = row["ours"]["cpu2"], row["ours"]["h200"]
    assert mine["change"] == pytest.approx(0.02, abs=0.003)
    assert mine["n"] == 6
    assert {**mine, "store": ""} == {**packed, "store": ""}
    assert packed["store"] == f"h200/{TAX}.tare"
    assert {each["machine"] for each in found["claims"]} == {"cpu2", "h200"}


def test_what_the_sampler_saw_is_a_figure_too(results):
    found = json.loads(tare("papers", "tables", "s0", results, "--json"))
    memory = next(row for row in found["rows"] if row["id"] == "0.13")["ours"]["cpu2"]
    assert memory["sides"] == {"bare": float(4 << 30), "docker": float(4 << 30)}
    assert memory["change"] == 0.0


def test_text_and_markdown_say_the_same_figures(results):
    text, page = (
        tare("papers", "tables", "s0", results, "--part", "rows"),
        tare("papers", "tables", "s0", results, "--format", "md"),
    )
    assert "0.1 LeNet-5, training" in text
    assert "| 0.1 | V-A1 | LeNet-5, training" in page
    assert "- s0-phase-breakup was not run:\n  - **0.8** MobileNetV3, training: optimiser step" in page
    assert "lighter models lose more" in page
    assert "lighter models lose more" not in text


def test_a_folder_with_stores_in_it_is_one_machine_of_that_name(results):
    found = json.loads(tare("papers", "tables", "S0", results / "cpu2", "--json"))
    assert [each["name"] for each in found["machines"]] == ["cpu2"]


def test_a_machine_that_ran_nothing_of_the_paper_is_no_column(results):
    found = json.loads(tare("papers", "tables", "s4", results, "--json"))
    assert (found["layers"], found["machines"], found["claims"]) == ({}, [], [])
    assert all(row["ours"] == {} for row in found["rows"])
    for form in ("text", "md"):
        said = " ".join(tare("papers", "tables", "s4", results, "--format", form).split())
        assert "No machine in these results has run any of this paper's studies." in said
        assert "image classification on bare metal" in said


def test_a_study_that_the_machine_refused_has_its_reason_and_makes_a_column(results, tmp_path):
    mine = Path(shutil.copytree(results, tmp_path / "results"))
    said = {"s0-power-sensitivity": ["power_mode: this board has no nvpmodel."], "s4-gpu": ["no GPU."]}
    (mine / "cpu2" / "not-run.json").write_text(json.dumps(said))

    found = json.loads(tare("papers", "tables", "s0", mine, "--json"))
    row = next(row for row in found["rows"] if row["id"] == "0.7a")["ours"]
    why = "s0-power-sensitivity cannot be run there: power_mode: this board has no nvpmodel"
    assert (row["cpu2"]["why"], row["h200"]["why"]) == (why, "s0-power-sensitivity was not run")
    text = " ".join(tare("papers", "tables", "s0", mine, "--part", "rows").split())
    short = "cpu2: s0-power-sensitivity cannot be run there (LETTER); h200: s0-power-sensitivity was not run:"
    letter = text.partition(f": {why}")[0].split()[-1]
    assert short.replace("LETTER", letter) in text

    (other,) = json.loads(tare("papers", "tables", "s4", mine, "--json"))["machines"]
    assert other["name"] == "cpu2"
    assert "refused every study" in tare("papers", "tables", "s4", mine)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("{", "this is not JSON"),
        ("[]", "there is no object in it"),
        ('{"s3-dvfs": "no clocks"}', "'s3-dvfs' has no list of obstacles"),
        ('{"s3-dvfs": []}', "'s3-dvfs' has no list of obstacles"),
        ('{"s3-dvfs": [1]}', "'s3-dvfs' has no list of obstacles"),
    ],
)
def test_a_list_of_refusals_that_is_wrong_is_named_with_its_form(results, tmp_path, written, why):
    mine = Path(shutil.copytree(results, tmp_path / "results"))
    (mine / "cpu2" / "not-run.json").write_text(written)
    with pytest.raises(StoreError, match=rf"not-run\.json: {why}") as error:
        tare("papers", "tables", "s0", mine)
    assert "It is written" in str(error.value)


def test_a_store_beside_folders_is_one_machine_with_what_lies_in_them(results, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(results / "cpu2" / TAX, out / TAX)
    with Store.create(out / "why" / "layers", {"study": "why-layers"}, "study: why-layers\n") as store:
        for record in container({}):
            store.begin(record).seal(record, [], "", "")
    found = json.loads(tare("papers", "tables", "s0", out, "--json"))
    assert [each["name"] for each in found["machines"]] == ["out"]
    assert found["layers"]["out"]["store"] == "out/why/layers"
    assert found["layers"]["out"]["apart"], found["layers"]["out"]
    assert found["layers"]["out"]["apart"]["metric"] == "step_s"
    assert found["rows"][0]["ours"]["out"]["store"] == f"out/{TAX}"


def test_what_is_not_there_is_said(results, tmp_path):
    with pytest.raises(StudyError, match="No paper 's7'"):
        tare("papers", "tables", "s7", results)
    with pytest.raises(StoreError, match="no such folder"):
        tare("papers", "tables", "s0", tmp_path / "nowhere")
    with pytest.raises(StoreError, match="no store in this folder"):
        tare("papers", "tables", "s0", tmp_path)
    with pytest.raises(StudyError, match="belong to S0 alone"):
        tare("papers", "tables", "s1", results, "--part", "layers")


def test_stores_of_baseloads_alone_are_no_results(tmp_path):
    name = f"{TAX}-baseload"
    Store.create(tmp_path / "cpu2" / name, described(name, "small"), f"study: {name}\n").close()
    with pytest.raises(StoreError, match="stores of baseloads alone"):
        tare("papers", "tables", "s0", tmp_path)


def test_the_papers_own_study_of_the_idle_device_is_a_result(tmp_path):
    write_store(tmp_path / "h200" / "s0-baseload", "s0-baseload", "small", {}, blocks=6, metrics=["power_mean_w"])
    found = json.loads(tare("papers", "tables", "s0", tmp_path, "--json"))
    (row,) = [each for each in found["rows"] if each["id"] == "0.12c"]
    assert row["ours"]["h200"]["store"] == "h200/s0-baseload"
