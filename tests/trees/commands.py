"""Pretended `nvpmodel` and `jetson_clocks`: real commands that act on a tree of files, to be put on the PATH.

`behaviour` says how they go wrong: `hang`, `reboot` (asks, and waits for an answer), `round` (takes the clock below),
`ignore` (says yes and does nothing), `refuse`, `dies N` (is killed before its Nth write).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

# It imports nothing: these are called hundreds of times, and most of the time of each was imports.
_BOARD = """#!/bin/sh
'''exec' {python} -IS "$0" "$@"
' '''
import os, sys, time
HOW = {behaviour!r}
at = lambda path: {root!r} + path
def read(path):
    with open(at(path)) as file:
        return file.read()
def write(path, text):
    with open(at(path), "w") as file:
        file.write(text)
params, models, block = {{}}, [], []
for line in read("/etc/nvpmodel.conf").splitlines():
    words = line.partition("#")[0].strip("< >").split()
    if line.startswith("<"):
        block, named = words[:1], dict(word.split("=", 1) for word in words[1:])
        if block == ["PARAM"]:
            files = params[named["NAME"]] = {{}}
        elif block == ["POWER_MODEL"]:
            models.append((named["ID"], named["NAME"], []))
    elif words and block == ["PARAM"]:
        files[words[0]] = words[1]
    elif words and block == ["POWER_MODEL"]:
        models[-1][2].append(words)
if HOW == "hang":
    time.sleep(600)
"""
_NVPMODEL = """
STATUS = "/var/lib/nvpmodel/status"
if sys.argv[1] == "-q":
    number = int(read(STATUS).split()[0].partition(":")[2])
    print("NV Power Mode:", *(name for each, name, _ in models if int(each) == number))
    print(number)
    sys.exit(0)
number, name, values = next(one for one in models if sys.argv[2] in one[:2])
if HOW == "refuse":
    sys.exit("NVPM ERROR: failed to set power mode")
if HOW == "reboot":
    print("NVPM WARN: Reboot required for changing to this power mode: " + name)
    print("NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:")
    sys.exit(0 if sys.stdin.readline().strip().lower() == "yes" else 1)
if HOW == "ignore":
    sys.exit(0)
left = int(HOW.split()[1]) if HOW.startswith("dies") else 0
for param, key, text in values:
    files = params[param]
    if param.endswith("POWER_GATING") or not os.path.exists(at(files[key])):
        continue
    if "FREQ_TABLE" in files and os.path.exists(at(files["FREQ_TABLE"])):
        table = sorted(map(int, read(files["FREQ_TABLE"]).split()))
        if text == "-1":
            text = str(table[-1])
        elif key == "MIN_FREQ":
            text = str(min(one for one in table if one >= int(text)))
        elif int(text):
            text = str(max(one for one in table if one <= int(text)))
        if HOW == "round" and key == "MAX_FREQ":
            text = str(table[max(0, table.index(int(text)) - 1)])
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)
    write(files[key], text + "\\n")
write(STATUS, "pmode:%04d fmode:quiet\\n" % int(number))
"""

_JETSON_CLOCKS = """
OVERRIDE = "/sys/kernel/debug/emc_override"
both = [(name, one.get("MIN_FREQ"), one.get("MAX_FREQ")) for name, one in params.items()]
clocks = [one for one in both if all(one)]
os.makedirs(os.path.dirname(at(OVERRIDE)), exist_ok=True)
if not os.path.exists(at(OVERRIDE)):
    write(OVERRIDE, "0\\n")
files = [low for _, low, _ in clocks] + [OVERRIDE]
if HOW == "refuse":
    sys.exit("Error! Must run as root")
verb = sys.argv[1] if len(sys.argv) > 1 else ""
if verb == "--show":
    for name, low, high in clocks:
        low, high = read(low).strip(), read(high).strip()
        print(f"{{'GPU' if name == 'GPU' else 'cpu0:'}} MinFreq={{low}} MaxFreq={{high}} CurrentFreq={{high}}")
    print("EMC MinFreq=204000000 MaxFreq=2133000000 FreqOverride=" + read(OVERRIDE).strip())
elif verb == "--store":
    with open(sys.argv[2], "w") as kept:
        kept.write("".join(f"{{path}}:{{read(path)}}" for path in files))
elif verb == "--restore":
    with open(sys.argv[2]) as kept:
        for line in kept:
            path, _, text = line.strip().rpartition(":")
            write(path, text + "\\n")
elif HOW != "ignore":
    for _, low, high in clocks:
        write(low, read(high))
    write(OVERRIDE, "1\\n")
"""


def nvpmodel(folder: Path, root: Path = Path("/"), behaviour: str = "works") -> Path:
    """The command in `folder`, acting on the board below `root`."""
    return _command(folder / "nvpmodel", _BOARD + _NVPMODEL, root, behaviour)


def jetson_clocks(folder: Path, root: Path = Path("/"), behaviour: str = "works") -> Path:
    """The command in `folder`, acting on the board below `root`."""
    return _command(folder / "jetson_clocks", _BOARD + _JETSON_CLOCKS, root, behaviour)


def _command(path: Path, text: str, root: Path, behaviour: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    filled = text.format(python=shlex.quote(sys.executable), root=str(root).rstrip("/"), behaviour=behaviour)
    path.write_text(filled)
    path.chmod(0o755)
    return path
