"""Every verb that takes a store takes a pack of it, and says the same.

`tare store pack --thin`: every figure of a real store follows from a quarter of its bytes, or no pack.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import recorded_stores
from tare.analysis.observations import idle_of
from tare.base.errors import StoreError, TareError
from tare.cli import store as thinning
from tare.cli import tare as verbs
from tare.parts.find import find
from tare.records.schema import THINNED_FILE
from tare.records.store import Store
from traced_stores import traced_store


def tare(*words: str) -> str:
    done = CliRunner().invoke(verbs, list(words), standalone_mode=False)
    if done.exception is not None:
        done.exception.add_note(done.stderr)
        raise done.exception
    return done.stdout


@pytest.fixture(scope="module")
def thinned(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("thin") / "energy.tare"
    tare("store", "pack", str(recorded_stores.ENERGY), "--thin", "-o", str(output))
    return output


def test_a_thinned_pack_is_small_and_every_figure_of_it_is_derived(thinned):
    assert thinned.stat().st_size < recorded_stores.ENERGY.stat().st_size / 3
    said = tare("store", "verify", str(thinned))
    assert "10 trials, every byte as packed (thinned)" in said
    assert "10 trials thinned: figures derived to 2 µs" in said
    assert "rest on the SHA-256 of each sealed file" in said
    [store] = json.loads(tare("store", "verify", str(thinned), "--json"))["stores"]
    assert (store["thinned"], store["problems"]) == (10, [])
    assert store["derived"] > 300


def test_verbs_say_the_same_of_a_thinned_pack(thinned, tmp_path):
    same_name = tmp_path / recorded_stores.ENERGY.name  # some verbs print it
    same_name.write_bytes(thinned.read_bytes())
    for words in (
        ("compare", "STORE", "--by", "control.power_mode.mode", "--against", "GPU 1980 MHz", "--json"),
        ("show", "energy", "STORE", "--json"),
    ):
        stores = (recorded_stores.ENERGY, same_name)
        whole, thin = (tare(*(str(path) if word == "STORE" else word for word in words)) for path in stores)
        assert thin.replace(str(same_name), "") == whole.replace(str(recorded_stores.ENERGY), "")


def test_a_figure_that_was_edited_in_a_thinned_pack_is_found(thinned, tmp_path):
    """Whoever edits a record must also make its hash anew; the marks still say otherwise."""
    with Store.open(thinned) as store:
        record = next(each for each in store.records() if "step_s" in each.metrics)
        folder = recorded_stores.unpacked(thinned, tmp_path / "store") / "trials" / f"{record.trial}.{record.attempt}"
    from tare.records.sealed import Manifest, manifest_for

    before = Manifest.from_json((folder / "manifest.json").read_bytes())
    data = json.loads((folder / "record.json").read_text())
    data["metrics"]["step_s"] *= 1.01
    (folder / "record.json").write_text(json.dumps(data))
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").write_bytes(manifest_for(folder, before.lost_marks, before.thinned))

    with pytest.raises(TareError) as found:
        tare("store", "verify", str(tmp_path / "store"))

    assert "step_s: stored" in "\n".join(found.value.__notes__)


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> tuple[Path, Path]:
    """A store whose figures are made of write-backs, tare's own among them, and its thinned pack."""
    rng, count = np.random.default_rng(3), 4000
    starts = np.sort(rng.integers(0, 30 * 10**6, 60)) * 1000  # intervals are compared to the last digit
    writes = {
        "t_ns": rng.integers(0, 30 * 10**9, count), "cpu": np.zeros(count, np.int32),
        "pid": rng.choice([7, 8], count).astype(np.int32), "dev": np.full(count, 8 << 20, np.int64),
        "inode": np.zeros(count, np.int64), "page": rng.zipf(1.5, count).clip(0, 500).astype(np.int64),
        "reason": rng.choice(["periodic", "outside"], count), "role": rng.choice(["tare", "workload"], count),
        "comm": ["kworker"] * count,
    }  # fmt: skip
    begun = {"t_ns": starts, "pid": rng.choice([7, 8], 60).astype(np.int32), "bdi": ["8:0"] * 60,
             "cgroup_ino": np.ones(60, np.uint64), "reason": ["periodic"] * 60}  # fmt: skip
    dirtied = {"t_ns": writes["t_ns"][:99], "role": ["workload"] * 99, "page": writes["page"][:99]}
    tables = {"page_writes": writes, "writeback_start": begun, "writeback_dirty_folio": dirtied}
    figures = (
        find("probes", "ftrace")
        .model_validate({"families": ["writeback"]})
        .figures(
            {name: {key: np.asarray(column) for key, column in table.items()} for name, table in tables.items()}, None
        )
    )
    study = {"study": "traced", "platform": ["bare"], "workload": {"null": {}}, "probes": [{"ftrace": ["writeback"]}]}
    facts = {"place": {}, "counted": {}, "traced": {"probes": ["ftrace"], "rows": {}, "trouble": []}}
    root = tmp_path_factory.mktemp("traced")
    traced_store(root / "store", {"aaaa": ({"platform": "bare"}, tables)}, study=study, metrics=figures, facts=facts)
    tare("store", "pack", str(root / "store"), "--thin", "-o", str(root / "store.tare"))
    return root / "store", root / "store.tare"


def test_verbs_say_the_same_of_page_writes_that_were_thinned(traced):
    for words, key in ((("show", "kernel"), "sections"), (("trace", "simulate"), "runs")):
        whole, thin = (json.loads(tare(*words, str(path), "--json"))[key] for path in traced)
        assert [without_times(each) for each in thin] == [without_times(each) for each in whole]
    whole, thin = (json.loads(tare("store", "verify", str(path), "--json"))["stores"][0] for path in traced)
    assert (thin["derived"], thin["problems"], thin["thinned"]) == (whole["derived"], [], 1)


def without_times(said: dict) -> dict:
    """Without the share of the time from the first page write to the last, whose times are rounded."""
    return {name: value for name, value in said.items() if name != "disk_busy_share"}


def test_page_writes_that_were_edited_in_a_thinned_pack_are_found(traced, tmp_path):
    """Its own description says whose writes they are."""
    edited = tmp_path / "x.tare"
    with tarfile.open(traced[1]) as tar:
        members = [(member, tar.extractfile(member).read()) for member in tar.getmembers()]
    with lzma.open(edited, "wb") as xz, tarfile.open(fileobj=xz, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data.replace(b'["tare","workload"]', b'["Tare","workload"]')))
    with pytest.raises(TareError) as found:
        tare("store", "verify", str(edited))
    assert "written_pages: stored" in "\n".join(found.value.__notes__)


def test_trials_whose_figures_need_nanoseconds_keep_them(tmp_path, monkeypatch):
    """The first look finds a figure of one trial that does not follow; after its times are kept, none is left."""
    real = thinning._not_derived
    looks: list[dict[str, str]] = []

    def look(store: Store, output: Path) -> dict[str, str]:
        found = real(store, output)
        first = store.records()[0]
        looks.append(found | ({f"{first.trial}.{first.attempt}": "steps: 22 and 23"} if not looks else {}))
        return looks[-1]

    monkeypatch.setattr(thinning, "_not_derived", look)
    with Store.open(recorded_stores.ENERGY) as store:
        thinning.thin_pack(store, tmp_path / "x.tare")
        first, second = store.records()[:2]
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress((tmp_path / "x.tare").read_bytes()))) as tar:
        assert THINNED_FILE in tar.getnames()
    with Store.open(tmp_path / "x.tare") as thin:
        assert [len(found) for found in looks] == [1, 0]
        assert thin.thinned(first.trial, first.attempt).resolution_ns == 1
        assert thin.thinned(second.trial, second.attempt).resolution_ns == 1000


def test_where_a_figure_does_not_follow_there_is_no_pack(tmp_path, monkeypatch):
    monkeypatch.setattr(thinning, "_not_derived", lambda store, output: {"aaaa.1": "steps: 22 and 23"})
    with pytest.raises(StoreError, match="no thinned pack is made: figures of 1 trials do not follow"):
        tare("store", "pack", str(recorded_stores.ENERGY), "--thin", "-o", str(tmp_path / "x.tare"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A store with its baseload beside it, and the packs of both."""
    root = tmp_path_factory.mktemp("packs")
    for name, source in (("modes", recorded_stores.ENERGY), ("modes-baseload", recorded_stores.IDLE)):
        recorded_stores.unpacked(source, root / name)
        tare("store", "pack", str(root / name))
    return root


def test_packing_says_where_the_pack_is(folder, tmp_path):
    told = json.loads(tare("store", "pack", str(folder / "modes"), "-o", str(tmp_path / "x.tare"), "--json"))
    assert told["file"] == str(tmp_path / "x.tare")
    assert told["trials"] == 10
    assert (tmp_path / "x.tare").read_bytes() == (folder / "modes.tare").read_bytes()
    assert "10 trials" in tare("store", "pack", str(folder / "modes"), "-o", str(tmp_path / "x.tare"))


VERBS = {
    "show": (),
    "papers claims": ("--paper", "s3"),
    "compare": ("--by", "control.power_mode.mode", "--against", "GPU 1980 MHz"),
    "show energy": (),
    "report": ("--figures",),
    "choose front": ("--json",),
    "show variability": (),
    "choose recommend": ("--steps", "100"),
    "store check": (),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_pack_gives_what_its_folder_gives(verb, folder):
    said = [tare(*verb.split(), str(folder / name), *VERBS[verb]) for name in ("modes", "modes.tare")]
    # What to run next differs: blocks are added to a folder, and not to a pack.
    plain, packed = (re.split(r"A decision takes|7 trials are suspect\. Why:", text)[0] for text in said)
    assert plain.replace(str(folder / "modes"), "X") == packed.replace(str(folder / "modes.tare"), "X")
    assert "tare-pack-" not in said[1]


def test_one_trial_of_a_pack_is_shown(folder):
    assert "gpu.power_w" in tare("show", str(folder / "modes.tare"), "229c4e38")


def test_a_packs_report_lies_beside_it(folder):
    tare("report", str(folder / "modes.tare"), "--format", "csv")
    tare("report", str(folder / "modes"), "--format", "csv")
    assert (folder / "modes-trials.csv").read_bytes() == (folder / "modes" / "trials.csv").read_bytes()
    tare("report", str(folder / "modes.tare"), "-o", str(folder / "page.html"))
    page = (folder / "page.html").read_text()
    assert "<html" in page
    assert "tare-pack-" not in page


def test_the_baseload_of_a_pack_is_the_pack_beside_it(folder, tmp_path):
    with Store.open(folder / "modes.tare") as packed, Store.open(folder / "modes") as plain:
        found = idle_of(packed, [])
        assert found == idle_of(plain, [])
    assert len(found) >= 1
    shutil.copy(folder / "modes.tare", tmp_path / "modes.tare")
    with Store.open(tmp_path / "modes.tare") as alone:
        assert idle_of(alone, []) == []
