"""The vm.dirty_* values: two forms of one limit, of which the kernel knows one at a time."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePath

import pytest
from pydantic import ValidationError

from tare.base.errors import ControlNotHeld, TareError
from tare.parts.controls.page_cache import Dirty
from tare.testing import FakeHost
from tare.trial.undo.journal import Journal
from tare.trial.undo.knob import hold_controls

VM = "/proc/sys/vm"
FOUND = {
    "dirty_ratio": "20",
    "dirty_bytes": "0",
    "dirty_background_ratio": "10",
    "dirty_background_bytes": "0",
    "dirty_expire_centisecs": "3000",
    "dirty_writeback_centisecs": "500",
}
OTHER = {name: name.replace("ratio", "bytes") if "ratio" in name else name.replace("bytes", "ratio") for name in FOUND}


@dataclass
class Kernel(FakeHost):
    """As mm/page-writeback.c has it: a limit that changes zeroes its other form; `deaf` ignores, `fixed` refuses."""

    deaf: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    def write(self, path: PurePath | str, text: str) -> None:
        name = str(path).rpartition("/")[2]
        if name in self.fixed:
            raise OSError(22, "Invalid argument")
        if name in self.deaf:
            return
        changed = self.files[str(path)].strip() != text
        super().write(path, f"{text}\n")
        if changed and OTHER[name] != name:
            self.files[f"{VM}/{OTHER[name]}"] = "0\n"

    def values(self) -> dict[str, str]:
        return {name: self.files[f"{VM}/{name}"].strip() for name in FOUND}


def kernel(deaf: tuple[str, ...] = (), fixed: tuple[str, ...] = (), **values: str) -> Kernel:
    files = {f"{VM}/{name}": f"{values.get(name, text)}\n" for name, text in FOUND.items()}
    return Kernel(files=files, deaf=deaf, fixed=fixed)


@pytest.mark.parametrize(
    "found",
    [
        FOUND,
        FOUND | {"dirty_ratio": "0", "dirty_bytes": "67108864"},
        FOUND | {"dirty_background_ratio": "0", "dirty_background_bytes": "1"},
        FOUND | {"dirty_ratio": "0", "dirty_background_ratio": "0"},  # no limit in either form
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        {"ratio": "40 %", "background_ratio": "5 %"},
        {"bytes": "64 MiB", "background_bytes": "16 MiB"},
        {"expire": "1.5 s", "writeback": "0 s"},
        {"bytes": "1 GiB", "background_ratio": "1 %", "expire": "5 min", "writeback": "10 s"},
    ],
)
def test_what_is_asked_for_is_in_force_and_then_everything_is_as_it_was(tmp_path: Path, found, fields):
    host, control = kernel(**found), Dirty.model_validate(fields)
    with ExitStack() as stack:
        inside = hold_controls(stack, host, [control], [], Journal(tmp_path / "device"))
        assert inside == {"dirty": host.values()}
        assert host.values() == control.target(host, [])
    assert host.values() == found


def test_a_limit_in_bytes_switches_the_share_off_and_nothing_else_moves():
    host, control = kernel(), Dirty(bytes=1 << 26)
    control.write(host, control.target(host, []))
    assert host.values() == FOUND | {"dirty_ratio": "0", "dirty_bytes": "67108864"}


def test_what_stands_right_is_not_written():
    host, control = kernel(), Dirty(ratio=0.2, expire=30.0)
    control.write(host, control.target(host, []))
    assert host.log == []


def test_a_kernel_that_ignores_a_value_is_noticed(tmp_path: Path):
    host = kernel(deaf=("dirty_expire_centisecs",))
    with (
        pytest.raises(ControlNotHeld, match=r"vm\.dirty_expire_centisecs: requested 100, the device reports 3000"),
        ExitStack() as stack,
    ):
        hold_controls(stack, host, [Dirty(expire=1.0, ratio=0.4)], [], Journal(tmp_path / "device"))
    assert host.values() == FOUND


def test_a_kernel_that_refuses_a_value_is_put_back_all_the_same(tmp_path: Path):
    host = kernel(fixed=("dirty_writeback_centisecs",))
    with pytest.raises(ControlNotHeld, match="Invalid argument"), ExitStack() as stack:
        hold_controls(stack, host, [Dirty(writeback=1.0, bytes=1 << 26)], [], Journal(tmp_path / "device"))
    assert host.values() == FOUND


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "at least one"),
        ({"ratio": 20}, "write '20 %'"),
        ({"ratio": "12.5 %"}, "whole percentage"),
        ({"ratio": "120 %"}, "whole percentage"),
        ({"ratio": "20 %", "bytes": "64 MiB"}, "one limit in two units"),
        ({"background_ratio": "20 %", "background_bytes": "64 MiB"}, "one limit in two units"),
        ({"bytes": "1 kB"}, "at least two pages"),
        ({"ratio": "10 %", "background_ratio": "10 %"}, "takes half of that"),
        ({"expire": "1 ms"}, "hundredths"),
        ({"expire": "0 s"}, "more than zero"),
        ({"expire": 30}, "no unit"),
    ],
)
def test_what_the_kernel_would_not_do_is_refused(fields, said):
    with pytest.raises(ValidationError, match=said):
        Dirty.model_validate(fields)


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        FOUND | {"dirty_ratio": "20; rm"},
        FOUND | {"dirty_ratio": 20},
        FOUND | {"../kernel/core_pattern": "1"},
        FOUND | {"dirty_bytes": "67108864"},  # both forms at once
    ],
)
def test_a_state_that_no_kernel_could_have_is_not_written(state):
    host = kernel()
    with pytest.raises(TareError):
        Dirty(ratio=0.3).write(host, state)
    assert host.log == []
