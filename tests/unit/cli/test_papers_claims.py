"""`tare papers claims` as a user types it, on real stores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from some_records import draft
from tare.base.errors import StoreError, StudyError
from tare.base.units import Channel
from tare.cli import tare as verbs
from tare.cli.studies import built_in
from tare.papers.claims.deciding import every_claim
from tare.papers.pages.claims import claims_text
from tare.records.spool import SpoolWriter
from tare.records.store import Store

WORKERS = "workload.workers"
ONE_WORKER = "s1.one-worker-removes-most-of-the-stall"


def tare(*words: str) -> str:
    done = CliRunner().invoke(verbs, list(words), standalone_mode=False, catch_exceptions=True)
    if done.exception is not None:
        raise done.exception
    return done.stdout


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
    assert "holds here          -90.0 % [-90.0, -90.0]    n 6     S1 III-A; S3 5.1.3" in said
    assert "s0.total-energy-rises" in said.partition("not measured:")[2]


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

    assert "tare run s0-container-tax --scale smoke" in " ".join(tare("papers", "claims", str(smoke)).split())
    assert "tare run s0-container-tax --scale smoke" in " ".join(
        tare("papers", "claims", str(smoke), str(whole)).split()
    )
    for stores in ((smoke, small), (whole,)):
        printed = " ".join(tare("papers", "claims", *map(str, stores)).split())
        assert "tare run s0-container-tax --scale" not in printed
        assert "tare run s0-power-sensitivity --scale full" in printed, "the scale that the claim takes"
