"""`tare papers tables` as a user types it, on real stores and packs.

`tare papers claims` as a user types it, on real stores.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from paper_results import described, write_store
from some_layers import container
from some_records import draft
from tare.api.running import built_in
from tare.base.errors import StoreError, StudyError
from tare.base.units import Channel
from tare.cli import tare as verbs
from tare.papers.claims.deciding import every_claim
from tare.papers.claims.model import Answer
from tare.papers.pages.claims import answers_text, claims_text
from tare.records.pack import pack
from tare.records.spool import SpoolWriter
from tare.records.store import Store

TAX = "s0-container-tax"
NOT_HERE = Answer("s0.x", "S0", "V", "it is so", "not measured", None, None, None, 0, (), "No.", "tare run s0-why")
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


def test_claims_take_a_folder_of_stores_and_packs(results, tmp_path):
    claims = json.loads(tare("papers", "claims", results / "h200", "--json"))["claims"]

    assert claims == json.loads(tare("papers", "claims", results / "h200" / f"{TAX}.tare", "--json"))["claims"]
    with pytest.raises(StoreError, match="this folder is empty"):
        tare("papers", "claims", tmp_path)
    with pytest.raises(StoreError, match="no such file or folder"):
        tare("papers", "claims", tmp_path / "nowhere.tare")


def test_folders_and_packs_are_read_alike_and_each_machine_is_a_column(results):
    found = json.loads(tare("papers", "tables", "s0", results, "--json"))

    assert set(found) == {"schema_version", "paper", "machines", "rows", "claims", "layers"}
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


WORKERS = "workload.workers"
ONE_WORKER = "s1.one-worker-removes-most-of-the-stall"


def answers(*words: str) -> list[dict]:
    return json.loads(tare("papers", "claims", *words, "--json"))["claims"]


def store(
    root: Path, *, left: float = 0.1, blocks: int = 6, device: str = "nx1", epochs: int = 4, **study: str
) -> Path:
    """Training without workers and with one, which leaves so much of the stall; with marks of its epochs."""
    with Store.create(root, {"study": "workers", **study}, "study: workers\n") as opened:
        for block in range(blocks):
            for workers in (0, 1):
                settings = {"platform": "bare", "workload": "torch_train", WORKERS: workers, "workload.epochs": epochs}
                begun = draft(f"{device}-{block}-{workers}", block=block, settings=settings)
                writer = opened.begin(begun)
                with SpoolWriter(writer.spool):
                    pass
                stall_s = (1 + block / 100) * (left if workers else 1.0) / 1000
                figures = {"step_s": 0.004, "stall_mean_s": stall_s}
                facts = {"device": {"id": device}}
                writer.seal(replace(begun, state="ok", metrics=figures, facts=facts), marks(epochs), "", "")
    return root


def marks(epochs: int) -> list[tuple[int, str, str, int]]:
    made, now_ns = [], 0
    for epoch in range(epochs):
        made.append((now_ns, "epoch", "begin", epoch))
        for step in range(3):
            number = 3 * epoch + step
            made += [(now_ns, "step", "begin", number), (now_ns := now_ns + 4_000_000 + epoch, "step", "end", number)]
        made.append((now_ns, "epoch", "end", epoch))
    return made


def test_claims_are_answered_from_a_store_with_all_that_they_rest_on(tmp_path):
    found = {each["id"]: each for each in answers(str(store(tmp_path / "store")))}

    assert list(found) == [claim.id for claim in every_claim()]
    one = found[ONE_WORKER]
    assert set(one) == {
        "id", "paper", "section", "statement", "word", "effect", "low", "high", "n", "trials", "why", "study", "where",
        "kind", "study_ready",
    }  # fmt: skip
    assert one["word"] == "holds here"
    assert one["low"] <= one["effect"] <= one["high"] < -0.5
    assert one["effect"] == pytest.approx(-0.9)
    assert one["n"] == 6
    assert len(one["trials"]) == 12
    assert one["study"] == "tare run s1-workers"
    assert one["study_ready"] is ("s1-workers" in built_in())
    assert found["s0.total-energy-rises"]["word"] == "not measured"
    assert "power probe" in found["s0.total-energy-rises"]["why"]


def test_epochs_come_from_the_marks_of_the_store(tmp_path):
    found = {each["id"]: each for each in answers(str(store(tmp_path / "store", epochs=12)), "--paper", "s3")}

    assert found["s3.epochs-vary-little"]["word"] == "holds here"
    assert found["s3.epochs-vary-little"]["effect"] < 0.001


def test_four_epochs_of_a_store_do_not_tell_how_much_they_vary(tmp_path):
    found = {each["id"]: each for each in answers(str(store(tmp_path / "store")), "--paper", "s3")}

    assert found["s3.epochs-vary-little"]["word"] == "not measured"


def platforms_store(root: Path) -> Path:
    """A container beside bare metal; the device, which has 1,000 bytes, has 5 bytes less to spare with it."""
    with Store.create(root, {"study": "memory"}, "study: memory\n") as opened:
        for block in range(6):
            for platform, available in (("bare", 600.0), ("docker", 595.0)):
                settings = {"platform": platform, "workload": "torch_train", "probes": "cpu,memory"}
                begun = draft(f"{platform}-{block}", block=block, settings=settings)
                writer = opened.begin(begun)
                with SpoolWriter(writer.spool) as spool:
                    spool.channels([Channel("memory.available_bytes", "bytes", "gauge")])
                    for t_ns in (13_000_000, 20_000_000):  # while the second epoch ran
                        spool.tick(t_ns, [(t_ns, "memory.available_bytes", available)])
                facts = {"device": {"id": "nx1", "memory_bytes": 1000}}
                figures = {"step_s": 0.004, "warm_up_steps": 3.0, "max_rss_bytes": 7.0}
                writer.seal(replace(begun, state="ok", metrics=figures, facts=facts), marks(2), "", "")
    return root


def test_memory_of_the_device_comes_from_what_the_probe_saw_while_the_steps_ran(tmp_path):
    found = {each["id"]: each for each in answers(str(platforms_store(tmp_path / "store")), "--paper", "s0")}

    memory = found["s0.memory-cost-is-small"]
    assert memory["word"] == "holds here"
    assert memory["effect"] == pytest.approx(1.405 / 1.4 - 1)


def test_the_text_fits_eighty_columns_and_has_word_effect_and_section(tmp_path):
    said = tare("papers", "claims", str(store(tmp_path / "store")))

    assert max(map(len, said.splitlines())) <= 80
    assert ", -90.0 % [-90.0, -90.0]" in " ".join(said.split())
    assert "`--paper s0` (to s4) has" in " ".join(said.partition("not measured: ")[2].split())
    whole = tare("papers", "claims", str(tmp_path / "store"), "--paper", "s1")
    assert "holds here          -90.0 % [-90.0, -90.0]    n 6     S1 III-A; S3 5.1.3" in whole
    listed = tare("papers", "claims", str(tmp_path / "store"), "--paper", "s0")
    assert "s0.total-energy-rises" in listed.partition("not measured:")[2]


def test_verdicts_are_counted_in_their_plural():
    found = [replace(NOT_HERE, word=word) for word in ("holds here", "does not hold here", "does not hold here")]

    assert answers_text(found, ()).startswith("2 do not hold here, 1 holds here\n")


def test_without_a_store_every_claim_is_listed_with_how_to_measure_it():
    said = " ".join(tare("papers", "claims").split())

    for claim in every_claim():
        assert claim.id in said
        assert (f"{claim.command} " in f"{said} ") == (claim.study in built_in())
    assert {each["word"] for each in answers()} == {"not measured"}


def test_only_a_study_that_comes_with_tare_is_offered_as_a_command():
    first, *others = every_claim()
    unready = [claim for claim in others if claim.study != first.study]

    said = " ".join(claims_text([first, *unready], {first.study}).split())

    assert first.command in said
    assert said.count("tare run") == 1
    assert said.count("no ready study for it yet") == len(unready)


def test_blocks_of_two_stores_are_not_pooled_and_each_device_has_its_own_answer(tmp_path):
    first, second = store(tmp_path / "a", blocks=4), store(tmp_path / "b", blocks=4)
    other = store(tmp_path / "c", blocks=6, device="nx2", left=0.9)

    (alone,) = [each for each in answers(str(first)) if each["id"] == ONE_WORKER]
    (pooled,) = [each for each in answers(str(first), str(second)) if each["id"] == ONE_WORKER]
    apart = [each for each in answers(str(first), str(other)) if each["id"] == ONE_WORKER]

    assert (alone["word"], alone["n"]) == ("undecided", 4)
    assert (pooled["word"], pooled["n"]) == ("undecided", 2)
    assert [each["word"] for each in apart] == ["undecided", "does not hold here"]
    assert [each["where"] for each in apart] == [f"{first} (nx1)", f"{other} (nx2)"]


def test_a_store_named_twice_counts_once(tmp_path):
    root = str(store(tmp_path / "a", blocks=4))

    (found,) = [each for each in answers(root, f"{root}/.") if each["id"] == ONE_WORKER]

    assert (found["word"], found["n"]) == ("undecided", 4)


def test_a_wrong_paper_and_a_wrong_folder_are_refused_in_a_sentence(tmp_path):
    with pytest.raises(StudyError, match="No paper 's7'"):
        tare("papers", "claims", "--paper", "s7")
    with pytest.raises((StoreError, StudyError), match=str(tmp_path)):
        tare("papers", "claims", str(tmp_path))


def test_what_to_run_next_has_the_scale_of_the_stores_where_they_have_one(tmp_path):
    smoke = store(tmp_path / "smoke", scale="smoke")
    small = store(tmp_path / "small", scale="small", device="nx2")
    whole = store(tmp_path / "whole", device="nx3")

    assert "tare run s0-container-tax --scale smoke" in " ".join(
        tare("papers", "claims", "--paper", "s0", str(smoke)).split()
    )
    assert "tare run s0-container-tax --scale smoke" in " ".join(
        tare("papers", "claims", "--paper", "s0", str(smoke), str(whole)).split()
    )
    for stores in ((smoke, small), (whole,)):
        printed = " ".join(tare("papers", "claims", "--paper", "s0", *map(str, stores)).split())
        assert "tare run s0-container-tax --scale" not in printed
        assert "tare run s0-power-sensitivity --scale full" in printed, "the scale that the claim takes"
