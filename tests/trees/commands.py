"""Pretended `nvpmodel` and `jetson_clocks`: real commands that act on a tree of files, to be put on the PATH.

`behaviour` says how they go wrong: `hang`, `reboot` (asks, and waits for an answer), `round` (takes the clock below),
`ignore` (says yes and does nothing), `refuse`, `dies N` (is killed before its Nth write).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

_NVPMODEL = """#!/bin/sh
'''exec' {python} -S "$0" "$@"
' '''
import os, sys, time
sys.path.insert(0, {source!r})
from pathlib import Path
from tare.drivers.power.named_mode import parse_conf

ROOT, HOW = Path({root!r}), {behaviour!r}
STATUS = ROOT / "var/lib/nvpmodel/status"
at = lambda path: ROOT / path.lstrip("/")
conf = parse_conf(at("/etc/nvpmodel.conf").read_text())
if HOW == "hang":
    time.sleep(600)
if sys.argv[1] == "-q":
    number = int(STATUS.read_text().split()[0].partition(":")[2])
    print("NV Power Mode:", conf.model(str(number)).name)
    print(number)
    sys.exit(0)
model = conf.model(sys.argv[2])
if HOW == "refuse":
    sys.exit("NVPM ERROR: failed to set power mode")
if HOW == "reboot":
    print("NVPM WARN: Reboot required for changing to this power mode: " + model.name)
    print("NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:")
    sys.exit(0 if sys.stdin.readline().strip().lower() == "yes" else 1)
if HOW == "ignore":
    sys.exit(0)
left = int(HOW.split()[1]) if HOW.startswith("dies") else 0
for value in model.values:
    param = conf.params[value.param]
    if value.param.endswith("POWER_GATING") or not at(param.files[value.key]).exists():
        continue
    text = value.text
    if "FREQ_TABLE" in param.files and at(param.files["FREQ_TABLE"]).exists():
        table = sorted(int(word) for word in at(param.files["FREQ_TABLE"]).read_text().split())
        if text == "-1":
            text = str(table[-1])
        elif value.key == "MIN_FREQ":
            text = str(min(one for one in table if one >= int(text)))
        elif int(text):
            text = str(max(one for one in table if one <= int(text)))
        if HOW == "round" and value.key == "MAX_FREQ":
            text = str(table[max(0, table.index(int(text)) - 1)])
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)
    at(param.files[value.key]).write_text(text + "\\\\n")
STATUS.write_text("pmode:%04d fmode:quiet\\\\n" % model.id)
"""

_JETSON_CLOCKS = """#!/bin/sh
'''exec' {python} -S "$0" "$@"
' '''
import sys, time
sys.path.insert(0, {source!r})
from pathlib import Path
from tare.drivers.power.named_mode import parse_conf

ROOT, HOW = Path({root!r}), {behaviour!r}
OVERRIDE = ROOT / "sys/kernel/debug/emc_override"
at = lambda path: ROOT / path.lstrip("/")
params = parse_conf(at("/etc/nvpmodel.conf").read_text()).params.values()
clocks = [one for one in params if {{"MIN_FREQ", "MAX_FREQ"}} <= set(one.files)]
OVERRIDE.parent.mkdir(parents=True, exist_ok=True)
if not OVERRIDE.exists():
    OVERRIDE.write_text("0\\\\n")
files = [at(one.files["MIN_FREQ"]) for one in clocks] + [OVERRIDE]
if HOW == "hang":
    time.sleep(600)
if HOW == "refuse":
    sys.exit("Error! Must run as root")
verb = sys.argv[1] if len(sys.argv) > 1 else ""
if verb == "--show":
    for one in clocks:
        low, high = (at(one.files[end]).read_text().strip() for end in ("MIN_FREQ", "MAX_FREQ"))
        name = "GPU" if one.name == "GPU" else "cpu0:"
        print(f"{{name}} MinFreq={{low}} MaxFreq={{high}} CurrentFreq={{high}}")
    print("EMC MinFreq=204000000 MaxFreq=2133000000 FreqOverride=" + OVERRIDE.read_text().strip())
elif verb == "--store":
    Path(sys.argv[2]).write_text("".join(f"{{path}}:{{path.read_text()}}" for path in files))
elif verb == "--restore":
    for line in Path(sys.argv[2]).read_text().splitlines():
        path, _, text = line.rpartition(":")
        Path(path).write_text(text + "\\\\n")
elif HOW != "ignore":
    for one in clocks:
        at(one.files["MIN_FREQ"]).write_text(at(one.files["MAX_FREQ"]).read_text())
    OVERRIDE.write_text("1\\\\n")
"""


def nvpmodel(folder: Path, root: Path = Path("/"), behaviour: str = "works") -> Path:
    """The command in `folder`, acting on the board below `root`."""
    return _command(folder / "nvpmodel", _NVPMODEL, root, behaviour)


def jetson_clocks(folder: Path, root: Path = Path("/"), behaviour: str = "works") -> Path:
    """The command in `folder`, acting on the board below `root`."""
    return _command(folder / "jetson_clocks", _JETSON_CLOCKS, root, behaviour)


def _command(path: Path, text: str, root: Path, behaviour: str) -> Path:
    source = str(Path(__file__).parents[2] / "src")
    path.parent.mkdir(parents=True, exist_ok=True)
    filled = text.format(python=shlex.quote(sys.executable), source=source, root=str(root), behaviour=behaviour)
    path.write_text(filled.replace("\\\\n", "\\n"))
    path.chmod(0o755)
    return path
