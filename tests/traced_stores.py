"""Stores whose trials have page writes, as the ftrace probe keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from some_records import draft
from tare.records.parquet import TableFiles, TableName
from tare.records.spool import SpoolWriter
from tare.records.store import Store


def page_writes(pages: list[int], role: str = "workload") -> dict[str, Any]:
    """A row a page, 10 ms apart."""
    count = len(pages)
    return {
        "t_ns": np.arange(count, dtype=np.int64) * 10_000_000,
        "cpu": np.zeros(count, np.int32),
        "pid": np.full(count, 7, np.int32),
        "dev": np.full(count, 8 << 20, np.int64),
        "inode": np.arange(count, dtype=np.int64) % 2 * 12,  # known or not, as it comes: the page is the device's
        "page": np.array(pages, np.int64),
        "reason": ["periodic"] * count,
        "role": [role] * count,
        "comm": ["kworker"] * count,
    }


def traced_store(
    root: Path,
    trials: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]],
    device: Mapping[str, Any] | None = None,
    study: Mapping[str, Any] | None = None,
    **recorded: Any,
) -> Path:
    """Trials by name, each with its settings and its tables of the ftrace probe; `recorded`: of their records."""
    with Store.create(root, study or {"study": "traced"}, "study: traced\n") as store:
        for block, (name, (settings, tables)) in enumerate(trials.items()):
            begun = draft(name, block=block, settings=dict(settings))
            writer = store.begin(begun)
            with SpoolWriter(writer.spool):
                pass
            with TableFiles(writer.tables) as files:
                for table, columns in tables.items():
                    files.add(TableName("ftrace", table), columns)
                files.write()
            facts = {"device": {"id": "nx1", **(device or {})}, "traced": ["ftrace"]}
            writer.seal(replace(begun, state="ok", **{"facts": facts, **recorded}), [], "", "")
    return root
