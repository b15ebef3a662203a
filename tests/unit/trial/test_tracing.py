"""From a recorder's raw files to tables and figures; one that fails costs only its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tare.base.errors import TareError
from tare.parts.protocols import Recorder, Table
from tare.records.model import Record, depends_on_speed
from tare.records.parquet import tables_in
from tare.trial.state import make_tables


class Counts(Recorder):
    """Keeps one raw file of bytes; each is a row."""

    called = "counts"

    def obstacles(self, host: Any) -> list[str]:
        return []

    def record(self, host: Any, scopes: Any, folder: Path) -> Any:
        raise AssertionError("the sampler does that")

    def tables(self, folder: Path) -> Iterator[Table]:
        for value in (folder / "raw").read_bytes():
            yield Table("values", {"value": np.array([value])})

    def figures(self, tables: Mapping[str, Mapping[str, Any]], steps: int | None) -> dict[str, float]:
        total = float(tables["values"]["value"].sum())
        return {"counted": total, **({"counted_step": total / steps} if steps else {})}


class Broken(Counts):
    """One whose file is not what it should be."""

    called = "broken"

    def tables(self, folder: Path) -> Iterator[Table]:
        raise TareError("page 3 has no commit word.")


def recorded(raw: Path, *names: str) -> Path:
    for name in names:
        (raw / name).mkdir(parents=True)
        (raw / name / "raw").write_bytes(bytes([1, 2, 3]))
    return raw


def test_raw_files_become_tables_and_figures_and_go(tmp_path: Path) -> None:
    raw = recorded(tmp_path / "raw", "counts")
    traced = make_tables([Counts()], raw, tmp_path / "tables", steps=2)
    assert traced.figures == {"counted": 6.0, "counted_step": 3.0}
    assert traced.rows == {"counts.values": 3}
    assert tables_in(tmp_path / "tables", "counts")["values"]["value"].tolist() == [1, 2, 3]
    assert not (raw / "counts").exists()


def test_one_that_cannot_be_decoded_costs_only_its_own(tmp_path: Path) -> None:
    raw = recorded(tmp_path / "raw", "broken", "counts")
    traced = make_tables([Broken(), Counts()], raw, tmp_path / "tables", steps=None)
    assert [*map(str, traced.trouble)] == ["broken: what it recorded could not be decoded: page 3 has no commit word."]
    assert traced.figures == {"counted": 6.0}
    assert traced.probes == ["broken", "counts"]


def test_one_that_could_not_start_leaves_nothing_to_decode(tmp_path: Path) -> None:
    traced = make_tables([Counts()], tmp_path / "raw", tmp_path / "tables", steps=None)
    assert (traced.figures, traced.trouble, traced.probes) == ({}, [], ["counts"])


def test_beside_a_tracer_times_and_energy_are_not_compared_but_counts_are() -> None:
    figures = {"step_s": 1.0, "energy_j": 2.0, "power_mean_w": 3.0, "system_calls": 4.0, "writeback_interval_s": 5.0}
    plain = Record("t", 1, "s", 0, 0, 0, {}, "ok", metrics=figures)
    traced = Record("t", 1, "s", 0, 0, 0, {}, "ok", metrics=figures, facts={"traced": {"probes": ["ftrace"]}})
    assert plain.compared == figures
    assert traced.compared == {"system_calls": 4.0, "writeback_interval_s": 5.0}
    assert [name for name in figures if depends_on_speed(name)] == ["step_s", "energy_j", "power_mean_w"]
