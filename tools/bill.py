"""The bill of materials of this environment: every installed package as CycloneDX JSON.

    python tools/bill.py [FILE]            what is installed here, with the hash of each package's own list of files
    python tools/bill.py --lock FILE       checks a lock: every package is pinned and has a hash

Needs no network and nothing but the standard library, so that it also works where no audit is possible.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^]]*\])?==[^ ;\\]+")
_HASHED = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def plain(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def component(found: metadata.Distribution) -> dict[str, Any]:
    name, record = plain(found.metadata["Name"]), found.read_text("RECORD") or ""
    made: dict[str, Any] = {
        "type": "library", "name": name, "version": found.version,
        "purl": f"pkg:pypi/{name}@{found.version}", "bom-ref": f"pkg:pypi/{name}@{found.version}",
    }  # fmt: skip
    if record:  # its lines hold the hash of every file
        made["properties"] = [{"name": "record-sha256", "value": hashlib.sha256(record.encode()).hexdigest()}]
    if licence := found.metadata.get("License-Expression"):
        made["licenses"] = [{"expression": licence}]
    return made


def bill() -> dict[str, Any]:
    """Sorted, and without a date: the same environment makes the same bytes."""
    components = {each["name"]: each for each in map(component, metadata.distributions())}
    root = components.pop("tare", {"type": "application", "name": "tare"})
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {**root, "type": "application"}},
        "components": [components[name] for name in sorted(components)],
    }  # fmt: skip


def faults_of_lock(text: str) -> list[str]:
    """Which packages of a requirements file are not pinned, or have no hash."""
    wrong = []
    for entry in re.split(r"\n(?=\S)", text):
        lines = [line for line in entry.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        if not lines or lines[0].startswith("-"):
            continue
        if not _PINNED.match(lines[0]):
            wrong.append(f"not pinned: {lines[0]}")
        elif not _HASHED.search(entry):
            wrong.append(f"without a hash: {lines[0]}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--lock", type=Path)
    asked = parser.parse_args()
    if asked.lock is not None:
        wrong, text = faults_of_lock(asked.lock.read_text()), asked.lock.read_text()
        sys.stdout.write(
            "".join(f"{each}\n" for each in wrong)
            or f"{len(_PINNED.findall(text))} packages, pinned, each with hashes\n"
        )
        return bool(wrong)
    text = json.dumps(bill(), indent=1) + "\n"
    if asked.file is None:
        sys.stdout.write(text)
    else:
        asked.file.write_text(text)
        sys.stdout.write(f"{asked.file}: {len(json.loads(text)['components'])} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
