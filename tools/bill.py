"""The bill of materials of this environment: every installed package as CycloneDX JSON.

    python tools/bill.py [FILE]            what is installed here, with the hash of each package's own list of files
    python tools/bill.py --pin FILE        a lock of what is installed: each version with the hashes of its files on the
                                           package index (PIP_INDEX_URL, else PyPI)
    python tools/bill.py --lock FILE       checks a lock: every package is pinned and has a hash
    python tools/bill.py --service         whether PyPI's list of vulnerabilities can be asked; exit code 75 if not

The standard library and pip do it all, so that this also works where pip-audit cannot be had.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

from pip._internal.models.index import PyPI  # where the index is: pip knows it

OURS = "tare-bench"
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
    root = components.pop(OURS, {"type": "application", "name": OURS})
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
        elif not _HASHED.search(entry) and "+" not in lines[0]:  # a local version, which no index lists
            wrong.append(f"without a hash: {lines[0]}")
    return wrong


def files_of(page: str, name: str, version: str) -> list[str]:
    """The SHA-256 of every file of one version, from a page of a package index."""
    links = re.findall(r'href="[^"#]*#sha256=([0-9a-f]{64})[^>]*>\s*([^<]+?)\s*</a>', page)
    begins = f"{plain(name)}-{plain(version)}"
    whole = re.compile(re.escape(begins) + r"(-.*\.whl|-(tar-gz|zip))")
    return sorted({digest for digest, file in links if whole.fullmatch(_as_name(file))})


def _as_name(file: str) -> str:
    return f"{plain(file.removesuffix('.whl'))}.whl" if file.endswith(".whl") else plain(file)


def lock() -> str:
    """Every installed package pinned, with hashes; one that the index does not have stays without."""
    index = os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/")
    lines = []
    for name, version in sorted((plain(each.metadata["Name"]), each.version) for each in metadata.distributions()):
        if name == OURS:
            continue
        request = urllib.request.Request(f"{index}/{name}/", headers={"Accept": "text/html"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = files_of(answer.read().decode("utf-8", "replace"), name, version)
        except OSError as error:
            sys.stderr.write(f"{name}: {error}\n")
            found = []
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{each}" for each in found)]))
    return "\n".join(lines) + "\n"


def why_no_service(index: str = PyPI.url) -> str:
    """Nothing if the list has what is known of an old package; else why not: an audit would find nothing there."""
    try:
        with urllib.request.urlopen(f"{index.rstrip('/')}/pypi/jinja2/3.1.3/json", timeout=30) as answer:
            found = json.loads(answer.read(1 << 24))
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__
    known = found.get("vulnerabilities") if isinstance(found, dict) else None
    return "" if known else "it lists nothing for jinja2 3.1.3, of which CVE-2024-34064 is known"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--pin", type=Path)
    parser.add_argument("--service", action="store_true")
    asked = parser.parse_args()
    if asked.service:
        if why := why_no_service():
            sys.stderr.write(
                f"no audit: the package index has no list of known vulnerabilities that can be used from here ({why}). "
                "The bill of materials and the lock were made and checked; run `make audit` where that list answers.\n"
            )
        return os.EX_TEMPFAIL if why else 0
    if asked.pin is not None:
        asked.pin.write_text(lock())
        return 0
    if asked.lock is not None:
        wrong, text = faults_of_lock(asked.lock.read_text()), asked.lock.read_text()
        sys.stdout.write(
            "".join(f"{each}\n" for each in wrong)
            or f"{len(_PINNED.findall(text))} packages, pinned, {text.count('+')} of a local version, "
            "all others with hashes\n"
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
