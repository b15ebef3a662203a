"""Killed at every write to the device, while it is changed and while it is put back: every file is as it was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePath

import pytest

from knobs import DEAD, journal_in
from tare.base.errors import ControlNotHeld
from tare.parts.controls.fan import FanSpeed
from tare.parts.controls.power import Cpu, Dvfs, PowerMode
from tare.parts.protocols import Control
from tare.trial.undo.knob import plain
from tare.trial.undo.restoration import restore
from trees import commands
from trees.jetson import agx_orin, agx_xavier, nano
from trees.kernel import Board, Kernel
from trees.server import acpi, x86

MOST_WRITES = 60
CASES: list[tuple[Callable[[Path], Path], list[Control]]] = [
    (agx_xavier, [PowerMode(cores=4, cpu_mhz=1200, gpu_mhz=670, mem_mhz=1333)]),
    (agx_xavier, [PowerMode(mode="MODE_10W"), Dvfs(state="off")]),
    (agx_orin, [PowerMode(mode="MODE_30W", gpu_mhz=408)]),
    (nano, [PowerMode(mode="5W"), FanSpeed(speed="max")]),
    (x86, [PowerMode(cores=2, cpu_mhz=1200, governor="performance", boost=False), Dvfs(state="off")]),
    (acpi, [Cpu(online=(0, 1)), PowerMode(cpu_mhz=1800), Dvfs(state="off")]),
]


class Killed(BaseException):
    """As kill -9: nobody cleans up."""


class Dying(Kernel):
    """Ends right before its n-th write, and so right after the one before."""

    def __init__(self, root: Path, at: int) -> None:
        super().__init__(root)
        self.at = at

    def write(self, path: PurePath | str, text: str) -> None:
        self.at -= 1
        if self.at == 0:
            raise Killed
        super().write(path, text)


def dump(root: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def change(host: Kernel, controls: list[Control], folder: Path) -> bool:
    """Hold the controls as a runner does that is killed on the way; whether it came to the end."""
    journal = journal_in(folder, owner=DEAD)
    try:
        for control in controls:
            before, target = plain(control.read(host)), plain(control.target(host, []))
            journal.note_knob(control, before, target)
            control.write(host, target)
            assert plain(control.read(host)) == target
    except Killed:
        return False
    return True


@pytest.mark.parametrize("case", range(len(CASES)))
def test_whatever_was_changed_when_it_died_is_put_back(board: Board, tmp_path: Path, case: int):
    tree, controls = CASES[case]
    root = board(tree, nvpmodel="works", jetson_clocks="works").root
    before = dump(root)
    for at in range(1, MOST_WRITES):
        finished = change(Dying(root, at), controls, tmp_path)
        report = restore(Kernel(root), journal_in(tmp_path))
        assert report.clean, (at, report.foreign, report.failed)
        assert without_debris(dump(root)) == before, at
        if finished:
            return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_restore_that_dies_is_gone_on_with_by_the_next(board: Board, tmp_path: Path, case: int):
    tree, controls = CASES[case]
    root = board(tree, nvpmodel="works", jetson_clocks="works").root
    before = dump(root)
    for at in range(1, MOST_WRITES):
        assert change(Kernel(root), controls, tmp_path)
        try:
            restore(Dying(root, at), journal_in(tmp_path, owner=DEAD))
            died = False
        except Killed:
            died = True
        assert restore(Kernel(root), journal_in(tmp_path)).clean, at
        assert without_debris(dump(root)) == before, at
        if not died:
            return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("when", ["changed", "restored"])
def test_a_mode_command_that_is_killed_in_the_middle_is_nobody_elses_change(board: Board, tmp_path: Path, when: str):
    kernel = board(agx_xavier, nvpmodel="works")
    root, control = kernel.root, PowerMode(mode="MODE_10W")
    before = dump(root)
    for at in (3, 8, 14):
        journal = journal_in(tmp_path, owner=DEAD)
        journal.note_knob(control, plain(control.read(kernel)), plain(control.target(kernel, [])))
        commands.nvpmodel(tmp_path / "bin", root, f"dies {at}" if "changed" in when else "works")
        with suppress(ControlNotHeld):
            control.write(kernel, control.target(kernel, []))
        if "restored" in when:
            commands.nvpmodel(tmp_path / "bin", root, f"dies {max(1, at - 2)}")
            restore(kernel, journal_in(tmp_path, owner=DEAD))
        commands.nvpmodel(tmp_path / "bin", root)
        report = restore(kernel, journal_in(tmp_path))
        assert report.clean, (at, report.foreign, report.failed)
        assert dump(root) == before, at


def without_debris(files: dict[str, str]) -> dict[str, str]:
    """Without what the pretended jetson_clocks keeps for itself, which must be off."""
    own = [path for path in files if path.endswith("emc_override")]
    assert all(files[path] == "0\n" for path in own)
    return {path: text for path, text in files.items() if path not in own}
