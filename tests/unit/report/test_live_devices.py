"""What the dashboard says of the devices of a fleet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from fleet_stores import BROKEN, NOW, fleet_store, trial, write_line
from hostile import PAYLOADS
from pretended_run import new_store
from tare.report.live.screen import screen
from tare.report.live.snapshot import Watched


def look(root: Path) -> dict:
    return Watched(root, dict, NOW.timestamp).look()


def shown(seen: dict, width: int = 80, devices: int | None = None) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(screen([seen], width, devices))
    return console.export_text()


def test_each_device_has_a_row_and_those_in_trouble_come_first(tmp_path: Path) -> None:
    with fleet_store(tmp_path / "store", 4):
        fleet = look(tmp_path / "store")["fleet"]
    assert fleet["words"] == "4 devices: 1 vanished, 1 skipped, 1 at a trial, 1 done"
    assert [(row["name"], row["state"], row["done"], row["left"], row["last"]) for row in fleet["rows"]] == [
        ("dev-0", "vanished", 0, 2, ""),
        ("dev-1", "skipped", 0, 2, ""),
        ("dev-3", "running", 0, 2, ""),
        ("dev-2", "done", 2, 0, "ok"),
    ]
    vanished, given_up, running, _ = fleet["rows"]
    assert BROKEN in vanished["why"]
    assert given_up["why"] == "no space left on this device."
    assert (running["trial"], running["since"]) == (trial("dev-3", 0).trial[:8], "5 min 00 s")


def test_a_run_that_is_gone_leaves_trials_whose_end_nobody_has_seen(tmp_path: Path) -> None:
    fleet_store(tmp_path / "store", 4).close()
    seen = look(tmp_path / "store")
    assert seen["fleet"]["counts"]["unseen"] == 1
    assert seen["progress"]["state"] == "not running"
    assert "unseen for 5 min 00 s" in shown(seen)


def test_a_new_run_forgets_why_the_last_one_gave_a_device_up(tmp_path: Path) -> None:
    root = tmp_path / "store"
    eye = Watched(root, dict, NOW.timestamp)
    with fleet_store(root, 4):
        assert eye.look()["fleet"]["counts"]["skipped"] == 1
        write_line(root, "", "begun", 5, run="y", devices=["dev-0", "dev-1", "dev-2", "dev-3"])
        write_line(root, "dev-1", "try", 2, trial=trial("dev-1", 0).trial, claim="c")
        seen = eye.look()
    assert seen["fleet"]["counts"] == {"running": 1, "waiting": 2, "done": 1}
    eye.close()


def test_half_a_line_is_read_once_it_is_whole_and_what_is_no_line_is_passed_over(tmp_path: Path) -> None:
    root = tmp_path / "store"
    eye = Watched(root, dict, NOW.timestamp)
    with fleet_store(root, 4):
        with (root / "fleet.jsonl").open("a") as file:
            file.write('not json\n[]\n{"device": "dev-3"}\n{"utc": "2026-11-15T12:00:00+00:00", "device": "dev-3", ')
        assert eye.look()["fleet"]["counts"]["running"] == 1
        with (root / "fleet.jsonl").open("a") as file:
            file.write('"what": "skipped", "text": "it burns."}\n')
        assert eye.look()["fleet"]["counts"]["skipped"] == 2
    eye.close()


@pytest.mark.parametrize("devices", [3, 300])
def test_a_terminal_of_80_columns_has_room_for_all_of_them(tmp_path: Path, devices: int) -> None:
    with fleet_store(tmp_path / "store", devices):
        seen = look(tmp_path / "store")
    lines = shown(seen).splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert sum(line.startswith("dev-") for line in lines) == devices
    told = next(line for line in lines if "devices:" in line)
    assert lines.index(told) < next(place for place, line in enumerate(lines) if line.startswith("dev-"))
    if devices == 300:
        fewer = shown(seen, devices=10)
        assert "and 290 more devices" in fewer
        assert "vanished" in fewer


def test_a_store_of_one_device_has_no_fleet(tmp_path: Path) -> None:
    new_store(tmp_path / "store", []).close()
    seen = look(tmp_path / "store")
    assert seen["fleet"] is None
    assert "devices" not in shown(seen)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_a_device_says_comes_out_as_text_that_a_terminal_survives(tmp_path: Path, payload: str) -> None:
    root = tmp_path / "store"
    with fleet_store(root, 4):
        write_line(root, payload, "skipped", 1, text=payload)
        seen = look(root)
    assert not set("\x00\x07\x1b\u202e\ud800") & set(shown(seen) + json.dumps(seen, ensure_ascii=False))


def test_what_was_found_in_a_knob_is_told_without_the_signs_of_a_program(tmp_path: Path) -> None:
    new_store(tmp_path / "store", []).close()
    row = {"knob": "cpu", "baseline": {"online": [0, 1], "governor": None}, "now": {"online": [0]}, "owner": "pid 7"}
    (told,) = Watched(tmp_path / "store", lambda: {"changed": [row]}).look()["changed"]
    assert (told["baseline"], told["now"]) == ("online 0, 1; governor none", "online 0")
