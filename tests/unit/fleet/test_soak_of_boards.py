"""S3 on five boards for 15 hours (Fig. 5), as a simulated fleet at speed; the run over the fleet is the real one."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from figure_stores import evidence_of
from pretended_fleet import PretendDevice, Scene
from tare.api.running import built_in
from tare.fleet.inventory import Device, factors, on_device
from tare.papers.claims.deciding import answers, claims_of, source_of
from tare.papers.claims.model import HOLDS
from tare.plan.matrix import Trial, cells, trials
from tare.records.model import Record, grouped
from tare.records.store import Store
from tare.report.charts.resources import epochs_figure
from tare.report.figure import as_file
from tare.studies.load import at_every_scale
from tare.studies.model import Study

SECOND = 10**9
BOARDS = ("agx-1", "agx-2", "agx-3", "agx-4", "agx-5")
EPOCH_S = 349.0  # of ResNet-18 on an AGX Xavier, as S3 prints it
STEPS = 4  # of an epoch, here
BEGUN = 1_790_000_000  # seconds since 1970
ODD = {"agx-4": 1.03}  # slower than the others


@dataclass
class Board(PretendDevice):
    """Runs a trial of hours at once: its marks say when its epochs would have begun and ended."""

    name: str = ""
    planned: dict[str, Trial] | None = None
    clock_s: float = BEGUN

    def run(self, question: dict[str, Any], state: str) -> None:
        self.ran.append(question["trial"])
        trial = (self.planned or {})[question["trial"]]
        rng = np.random.default_rng(zlib.crc32(f"{self.name} {trial.block}".encode()))
        epochs = int(trial.cell.settings["workload.epochs"])
        seconds = EPOCH_S * ODD.get(self.name, 1.0) * (1 + rng.normal(0, 0.002, epochs))
        seconds[0] *= 1.1
        marks = soak_marks(seconds)
        facts = {"device": {"kernel": self.kernel, "board": "Jetson-AGX"}, "inside": {"torch": {"version": "1.8.0"}}}
        draft = Record(
            trial.id, 0, "s3-variability", trial.block, trial.position, 0, dict(trial.cell.settings), "running",
            start_ns=1, end_ns=marks[-1][0] + 1, facts=facts, tare_version="0.1",
            started_utc=datetime.fromtimestamp(self.clock_s, UTC).isoformat(),
        )  # fmt: skip
        self.clock_s += float(seconds.sum())
        step_s = float(np.mean(seconds[1:])) / STEPS
        metrics = {
            "step_s": step_s,
            "step_mean_s": step_s,
            "epoch_s": float(np.mean(seconds[1:])),
            "warm_up_steps": 4.0,
        }
        self.store.begin(draft).seal(replace(draft, state=state, metrics=metrics), marks, "", "")


def soak_marks(seconds: np.ndarray) -> list[tuple[int, str, str, int]]:
    made: list[tuple[int, str, str, int]] = []
    now_ns, number = SECOND, 0
    for epoch_s in seconds.tolist():
        made.append((now_ns, "epoch", "begin", -1))
        step_ns = round(epoch_s * SECOND) // STEPS
        for _ in range(STEPS):
            made += [(now_ns, "step", "begin", number), (now_ns + step_ns, "step", "end", number)]
            now_ns, number = now_ns + step_ns, number + 1
        made.append((now_ns, "epoch", "end", -1))
    return made


class Soak(Scene):
    """Five boards of one type, and the study at the scale of that type."""

    def __init__(self, tmp_path: Path, names: tuple[str, ...]) -> None:
        super().__init__(tmp_path)
        self.soak = at_every_scale(built_in()["s3-variability"], trust=True)["agx"]
        planned = trials(self.soak, cells(self.soak))
        for name in names:
            device = Device(name=name, address=name, type="board")
            mine = {each.id: each for each in on_device(planned, factors(device))}
            store = Store.create(tmp_path / f"of-{name}", {"study": "s3-variability"}, "")
            self.devices[name] = Board(store, name=name, planned=mine)
        for name in ("one", "two"):
            del self.devices[name]

    def study(self, **_: Any) -> Study:
        return self.soak


@pytest.fixture(scope="module")
def soaked(tmp_path_factory):
    scene = Soak(tmp_path_factory.mktemp("soak"), BOARDS)
    scene.run()
    return scene


def test_every_board_runs_fifteen_hours_of_the_model_of_its_type(soaked):
    assert soaked.states() == {name: ["ok"] * 6 for name in BOARDS}
    hours = {name: (board.clock_s - BEGUN) / 3600 for name, board in soaked.devices.items()}
    assert all(14 < each < 16 for each in hours.values()), hours


def test_epochs_are_drawn_device_by_device_and_the_odd_one_is_named(soaked):
    with Store.open(soaked.root / "store") as store:
        figure = epochs_figure(evidence_of(store))
    assert figure is not None and figure.name == "spread-epochs"
    assert [row[0].text for row in figure.rows] == list(BOARDS)
    assert "the median of agx-4 lies +" in figure.reading and "720 in all" in figure.reading  # 5 x 6 runs x 24 epochs
    drawn = as_file(figure, "svg").decode()
    assert drawn.count("<path") > 10 and "NaN" not in drawn


def test_one_board_is_drawn_over_its_time(tmp_path):
    scene = Soak(tmp_path, BOARDS[:1])
    scene.run()
    with Store.open(scene.root / "store") as store:
        figure = epochs_figure(evidence_of(store))
    assert figure is not None and "over the time" in figure.title
    labels = [row[0].text for row in figure.rows]
    assert len(labels) == 8 and labels[0].startswith("0 to ") and labels[-1].endswith(" h")


def test_the_claims_of_the_section_are_decided_on_the_fleet(soaked):
    with Store.open(soaked.root / "store") as store:
        held = source_of(store, "soak")
        found = grouped(answers(claims_of("s3"), [held]), attrgetter("id"))
    assert [each.word for each in found["s3.epochs-vary-little"]] == [HOLDS]
    assert len(held.epochs) == 30  # of every trial of every board
    assert [each.word for each in found["s3.devices-vary-little"]] == [HOLDS]  # 3 %, within the paper's 7.8 %
