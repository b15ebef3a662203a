"""Stores and packs in a folder of results: all of them, in order, and nothing else."""

from __future__ import annotations

import pytest

from some_records import run_one
from tare.base.errors import NoSuchInput, StoreError
from tare.records.pack import pack, stores_in
from tare.records.store import Store


@pytest.fixture
def results(tmp_path):
    """Two machines: one with a store, one with a pack of it; a folder that is called like a pack is none."""
    root = tmp_path / "results"
    for machine in ("b", "a"):
        (root / machine).mkdir(parents=True)
    with Store.create(root / "b" / "weigh", {"study": "weigh"}, "study: weigh\n") as store:
        run_one(store)
        pack(store, root / "a" / "weigh.tare")
    (root / "a" / "folder.tare").mkdir()
    return root


def test_stores_and_packs_are_found_below_a_folder_in_order(results):
    assert stores_in(results) == [results / "a" / "weigh.tare", results / "b" / "weigh"]


@pytest.mark.parametrize("path", ["a/weigh.tare", "b/weigh"])
def test_a_store_or_a_pack_is_the_only_one(results, path):
    assert stores_in(results / path) == [results / path]


def test_where_there_is_nothing_it_is_said(results, tmp_path):
    with pytest.raises(NoSuchInput, match="no such folder of results"):
        stores_in(tmp_path / "none")
    with pytest.raises(StoreError, match=r"no store in this folder, and no pack \(\*\.tare\)"):
        stores_in(results / "a" / "folder.tare")
