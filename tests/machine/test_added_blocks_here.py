"""A store that leaves the question open: the printed command, typed as it is, adds blocks to it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tare.cli import tare
from tare.records.store import Store

STUDY = """\
study: two
platform: bare
workload:
  - command: {argv: [sleep, "0.01"], label: one}
  - command: {argv: [sleep, "0.01"], label: other}
repeat: 3
probes: []
aa: false
rehearse: false
compare: {by: workload.label, against: {workload.label: one}, metric: wall_s}
"""


def blocks(folder: Path) -> int:
    with Store.open(folder) as store:
        return len({record.block for record in store.records()})


def test_the_printed_command_adds_blocks_and_the_intervals_pay_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("two.yaml").write_text(STUDY)
    first = CliRunner().invoke(tare, ["run", "two.yaml", "-o", "store"])
    assert first.exit_code == 0, first.output
    (command,) = re.findall(r"^  (tare run store --blocks \d+)$", first.output, re.MULTILINE)

    second = CliRunner().invoke(tare, shlex.split(command)[1:])

    assert second.exit_code == 0, second.output
    assert blocks(Path("store")) == int(command.split()[-1]) > 3
    long = CliRunner().invoke(tare, ["compare", "-v", "store"])
    assert "Blocks were added after the run had been judged with 3" in " ".join(long.output.split())
    fewer = CliRunner().invoke(tare, ["run", "store", "--blocks", "3"])
    assert "has 6 blocks already" in str(fewer.exception)
    again = CliRunner().invoke(tare, ["run", "store"])  # it is what it was made: nothing is left to run
    assert again.exit_code == 0 and "all planned trials are done" in again.output
