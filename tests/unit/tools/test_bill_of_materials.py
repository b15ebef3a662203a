"""What `make audit` writes without a network: the bill of materials, and the check of the lock."""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "bill.py"
SOURCE = Path(__file__).parents[3] / "src"
PIN = "click==8.1.7 \\\n    --hash=sha256:" + "a" * 64 + "\n    # via tare\n"


def imported() -> set[str]:
    """Every top-level package that the sources import."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"tare", "tare_inside"}


def test_every_package_that_is_imported_and_installed_is_in_the_bill(tmp_path: Path):
    subprocess.run([sys.executable, TOOL, tmp_path / "bill.json"], check=True, capture_output=True)
    bill = json.loads((tmp_path / "bill.json").read_text())
    names = {each["name"] for each in bill["components"]}
    owners = metadata.packages_distributions()
    wanted = {owner for package in imported() for owner in owners.get(package, ())}
    assert {name.lower().replace("_", "-").replace(".", "-") for name in wanted} - {"tare-bench"} <= names
    assert len(names) > 5
    assert all(each["purl"].endswith(f"@{each['version']}") for each in bill["components"])
    assert bill["bomFormat"] == "CycloneDX"


def test_a_lock_without_a_hash_or_a_pin_is_refused(tmp_path: Path):
    def check(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "lock").write_text(text)
        line = [sys.executable, str(TOOL), "--lock", str(tmp_path / "lock")]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    assert (check(PIN).returncode, check(PIN).stdout) == (
        0,
        "1 packages, pinned, 0 of a local version, all others with hashes\n",
    )
    assert "without a hash: numpy==2.0" in check(f"{PIN}numpy==2.0\n").stdout
    assert "not pinned: numpy" in check(f"{PIN}numpy>=2\n").stdout
    assert check(f"{PIN}numpy==2.0\n").returncode == 1


PAGE = """
<a href="https://a.example/click-8.1.7-py3-none-any.whl#sha256={}" data-x="1">click-8.1.7-py3-none-any.whl</a>
<a href="https://files.example/b/click-8.1.7.tar.gz#sha256={}">click-8.1.7.tar.gz</a>
<a href="https://files.example/c/click-8.1.70-py3-none-any.whl#sha256={}">click-8.1.70-py3-none-any.whl</a>
<a href="https://files.example/d/click_plugins-8.1.7.tar.gz#sha256={}">click_plugins-8.1.7.tar.gz</a>
""".format(*(str(n) * 64 for n in range(4)))


def test_a_version_is_locked_to_its_own_files_alone():
    found = runpy.run_path(str(TOOL))["files_of"](PAGE, "Click", "8.1.7")
    assert found == ["0" * 64, "1" * 64]


def test_a_service_without_known_vulnerabilities_is_no_audit(tmp_path: Path):
    why = runpy.run_path(str(TOOL))["why_no_service"]
    answer = tmp_path / "pypi/jinja2/3.1.3/json"
    answer.parent.mkdir(parents=True)
    assert "No such file" in why(tmp_path.as_uri())
    for text, said in (("<html>", "Expecting value"), ("[]", "lists nothing"), ('{"vulnerabilities": []}', "nothing")):
        answer.write_text(text)
        assert said in why(tmp_path.as_uri())
    answer.write_text('{"vulnerabilities": [{"id": "x"}]}')
    assert why(tmp_path.as_uri()) == ""
