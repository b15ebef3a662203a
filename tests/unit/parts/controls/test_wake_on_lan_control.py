"""What wakes a network card, on a device with one that can, one that cannot, and a container's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from knobs import DEAD, journal_in
from tare.base.errors import TareError
from tare.base.host import Completed
from tare.parts.controls.power import WakeOnLan
from tare.testing import FakeHost
from tare.trial.undo.knob import hold_controls
from tare.trial.undo.restoration import restore

ALARM = "/sys/class/rtc/rtc1/wakealarm"
FILES = {
    "/proc/net/dev": "Inter-|   Receive\n face |bytes\n    lo: 1 2\n  eth0: 1 2\n veth1@x: 1\n wlan0: 3\n",
    "/sys/class/net/eth0/device/uevent": "DRIVER=r8168\n",
    "/sys/class/net/wlan0/device/uevent": "DRIVER=ath\n",
    ALARM: "\n",
    "/sys/class/rtc/rtc1/device/power/wakeup": "enabled\n",
}


@dataclass
class Board(FakeHost):
    """Its cards, with what each supports and what wakes it now; `deaf` takes a setting and does not keep it."""

    cards: dict[str, list[str]] = field(default_factory=lambda: {"eth0": ["pumbg", "d"], "wlan0": ["", "d"]})
    deaf: bool = False
    there: bool = True

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        self.asked.append(tuple(argv))
        match argv[1:]:
            case _ if not self.there:
                return Completed(tuple(argv), 127, "", "ethtool: there is no such command on this machine")
            case [card]:
                supports, now = self.cards[card]
                told = f"\tSupports Wake-on: {supports}\n\tWake-on: {now}\n" if supports else ""
                return Completed(tuple(argv), 0, f"Settings for {card}:\n{told}\tLink detected: yes\n", "")
            case ["-s", card, "wol", letters]:
                self.cards[card][1] = self.cards[card][1] if self.deaf else letters
        return Completed(tuple(argv), 0, "", "")


def board(**changes) -> Board:
    return Board(files=dict(FILES), **changes)


@pytest.mark.parametrize(("state", "letters"), [("on", "g"), ("off", "d")])
@pytest.mark.parametrize("found", ["d", "g", "ug"])
def test_the_card_is_as_asked_and_then_as_it_was_found(tmp_path: Path, state: str, letters: str, found: str) -> None:
    host = board(cards={"eth0": ["pumbg", found], "wlan0": ["", "d"]})
    control = WakeOnLan(state=state)
    assert control.obstacles(host) == []
    with ExitStack() as stack:
        held = hold_controls(stack, host, [control], [], journal_in(tmp_path))
        assert held == {"wake_on_lan": {"alarm": "", "eth0": letters}}
        assert host.cards["eth0"][1] == letters
    assert host.cards == {"eth0": ["pumbg", found], "wlan0": ["", "d"]}
    assert not [words for words in host.asked if "-s" in words and "wlan0" in words]


def test_a_run_that_is_killed_before_the_alarm_leaves_a_card_and_an_alarm_that_are_put_back(tmp_path: Path) -> None:
    host, journal = board(), journal_in(tmp_path, owner=DEAD)
    hold_controls(ExitStack(), host, [WakeOnLan(state="on")], [], journal)
    host.files[ALARM] = "1700001800\n"  # as the workload sets it, of which the journal knows nothing
    told = restore(host, journal_in(tmp_path))
    assert (told.clean, len(told.restored)) == (True, 1)
    assert host.cards["eth0"][1] == "d"
    assert host.files[ALARM] == "0"


def test_a_card_that_does_not_keep_it_is_not_held(tmp_path: Path) -> None:
    with ExitStack() as stack, pytest.raises(TareError, match="wake_on_lan"):
        hold_controls(stack, board(deaf=True), [WakeOnLan(state="on")], [], journal_in(tmp_path))


@pytest.mark.parametrize(
    ("changes", "files", "code", "says"),
    [
        ({}, {"/proc/net/dev": " lo: 1\n veth1: 2\n"}, "needs.hardware", "(none) can wake"),
        ({"there": False}, {}, "needs.hardware", "(eth0, wlan0) can wake"),
        ({"cards": {"eth0": ["pumb", "d"], "wlan0": ["", "d"]}}, {}, "needs.hardware", "(eth0, wlan0) can wake"),
        ({}, {ALARM: "1700001800\n"}, "needs.value", "set already, for 1700001800 s"),
    ],
)
def test_where_it_cannot_it_says_so(changes, files, code, says) -> None:
    (found,) = WakeOnLan(state="on").obstacles(Board(files=FILES | files, **changes))
    assert (found.code, says in found.sentence) == (code, True)


@pytest.mark.parametrize("state", [{}, {"eth0": "g"}, {"alarm": "", "eth0": "g; reboot"}, {"alarm": "", "eth1": "g"}])
def test_a_state_from_a_file_that_is_none_of_this_device_is_not_written(state) -> None:
    host = board()
    with pytest.raises(TareError, match="no state"):
        WakeOnLan(state="on").write(host, state)
    assert not [words for words in host.asked if "-s" in words]


def test_yaml_reads_on_as_true() -> None:
    assert [WakeOnLan.model_validate({"state": word}).state for word in (True, False, "on")] == ["on", "off", "on"]
