"""Every verb that takes a store takes a pack of it, and says the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import recorded_stores
from tare.analysis.baseload import idle_of
from tare.cli import tare as verbs
from tare.records.store import Store


def tare(*words: str) -> str:
    done = CliRunner().invoke(verbs, list(words), standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.stdout


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
    "analyse energy": (),
    "report": ("--figures",),
    "choose front": ("--json",),
    "analyse variability": (),
    "choose recommend": ("--steps", "100"),
    "store check": (),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_pack_gives_what_its_folder_gives(verb, folder):
    said = [tare(*verb.split(), str(folder / name), *VERBS[verb]) for name in ("modes", "modes.tare")]
    assert said[0].replace(str(folder / "modes"), "X") == said[1].replace(str(folder / "modes.tare"), "X")
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
