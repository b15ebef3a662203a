"""Short jobs of the built-in programs in this process, and inference on tiny data."""

from __future__ import annotations

import math
import struct
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tare_inside import marks, named
from tare_inside.workloads.formats import make
from tare_inside.workloads.programs import infer

SMALL = {"image": 0.05, "speech": 0.05, "question": 0.03, "recommendation": 0.0001}
"""The scale at which each application is quick."""


def job(folder: Path, **changes: Any) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: str(folder / f"{name}.json") for name in ("outcome", "fingerprint")}
    return {
        "batch": 2, "requests": 4, "concurrency": 1, "warm_up": 1, "rate_per_s": None, "backend": "eager",
        "device": "cpu", "scale": 1.0, "pixels": None, "threads": None, "seed": 3,
        "marks": str(folder / "marks.bin"), **files,
    } | changes  # fmt: skip


def network_job(folder: Path, **changes: Any) -> dict[str, Any]:
    return job(folder, **{"model": "lenet5", "timing": "sync"} | changes)


def application_job(folder: Path, data: Path, name: str, **changes: Any) -> dict[str, Any]:
    pixels = 64 if name == "image" else None
    fields = {"application": name, "data_path": str(data / name), "scale": SMALL[name], "pixels": pixels}
    return job(folder, **fields | changes)


def answered(asked: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    return outcome_and_marks(infer.run, asked)


def outcome_and_marks(
    run: Callable[[dict[str, Any]], dict[str, Any]], asked: dict[str, Any]
) -> tuple[dict[str, Any], list[Any]]:
    """Of a short run in this process, which is left with as many threads as before."""
    threads = torch.get_num_threads()
    try:
        outcome = run(asked)
    finally:
        marks.close_marks()
        torch.set_num_threads(threads)
    loaded, lost = marks.load(asked["marks"])
    assert lost == 0
    return outcome, loaded


def spans_ns(loaded: list[Any]) -> dict[tuple[str, int], int]:
    """How long each marked interval was."""
    times = {(name, step, edge): t_ns for t_ns, name, edge, step in loaded}
    return {
        (name, step): t_ns - times[name, step, "begin"] for (name, step, edge), t_ns in times.items() if edge == "end"
    }


def make_data(folder: Path) -> None:
    """Six items or more of each application's data, in the formats of the real ones."""
    _make_pictures(folder / "image", 6)
    _make_clips(folder / "speech", 6)
    make.make("questions", str(folder / "question"), 6, 0)
    lines = 6 * named.find("applications", "recommendation").LINES_AN_ITEM
    make.make("criteo", str(folder / "recommendation"), lines, 0, processes=1)


def _make_pictures(folder: Path, count: int) -> None:
    from PIL import Image

    for number in range(count):
        path = folder / "train" / f"n{number % 2:08d}" / f"{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = Image.radial_gradient("L").rotate(25 * number).resize((60 + number, 48))
        Image.merge("RGB", (picture, picture.rotate(90), picture.rotate(180))).save(path, "JPEG")


def _make_clips(folder: Path, count: int) -> None:
    """Half a second of sound each, one of them shorter."""
    chapter = folder / "dev-clean" / "84" / "121123"
    chapter.mkdir(parents=True)
    for number in range(count):
        length = 6000 if number == 1 else 8000
        samples = [int(9000 * math.sin(number + at * at / (3000 + 500 * number))) for at in range(length)]
        with wave.open(str(chapter / f"84-121123-{number:04d}.wav"), "wb") as file:
            file.setparams((1, 2, 16000, length, "NONE", "not compressed"))
            file.writeframes(struct.pack(f"<{length}h", *samples))
    lines = [f"84-121123-{number:04d} SOMETHING WAS SAID" for number in range(count)]
    (chapter / "84-121123.trans.txt").write_text("\n".join(lines) + "\n")
