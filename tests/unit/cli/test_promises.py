"""What docs/reference/stores-and-json.md says scripts may rely on: JSON with a version, exit codes, no network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tare import cli
from tare.base import errors
from tare.base.errors import EXIT_CODES, TareError

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference"
STORE = str(ROOT / "studies-results" / "cpu2" / "s0-container-tax.tare")
PRINTED = {
    "compare": ["compare", STORE, "--fail-over", "50%"],
    "show": ["show", STORE],
    "plan": ["plan", "s0-seccomp", "--scale", "smoke"],
    "doctor": ["doctor"],
    "list-studies": ["list", "studies"],
}


def faults(value: Any, schema: dict[str, Any], defs: dict[str, Any], at: str = "$") -> list[str]:
    """Where a value is not as its JSON Schema says, of the words that our schemas use."""
    if "$ref" in schema:
        return faults(value, defs[schema["$ref"].rpartition("/")[2]], defs, at)
    if "anyOf" in schema:
        tried = [faults(value, each, defs, at) for each in schema["anyOf"]]
        return [] if [] in tried else [fault for each in tried for fault in each]
    known = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    wanted = schema.get("type")
    if wanted == "null":
        return [] if value is None else [f"{at}: not null"]
    if wanted and (not isinstance(value, known[wanted]) or (isinstance(value, bool) and wanted != "boolean")):
        return [f"{at}: {value!r} is no {wanted}"]
    found = [f"{at}: not {schema['const']!r}"] if value != schema.get("const", value) else []
    if isinstance(value, str) and value not in schema.get("enum", [value]):
        found.append(f"{at}: {value!r} is none of {schema['enum']}")
    if isinstance(value, dict):
        found += [f"{at}: no {name!r}" for name in schema.get("required", ()) if name not in value]
        for name, each in schema.get("properties", {}).items():
            found += faults(value[name], each, defs, f"{at}.{name}") if name in value else []
    if isinstance(value, list) and "items" in schema:
        found += [fault for n, each in enumerate(value) for fault in faults(each, schema["items"], defs, f"{at}[{n}]")]
    return found


@pytest.mark.parametrize("verb", PRINTED)
def test_what_is_printed_is_as_its_schema_says(verb: str) -> None:
    schema = json.loads((REFERENCE / "json" / f"{verb}.schema.json").read_text())
    done = CliRunner().invoke(cli.tare, [*PRINTED[verb], "--json"], catch_exceptions=False)
    printed = json.loads(done.stdout)

    assert faults(printed, schema, schema["$defs"]) == []
    assert {*printed} == {*schema["properties"]}
    for name in schema["required"]:
        assert faults({key: printed[key] for key in printed if key != name}, schema, schema["$defs"])
    assert faults({**printed, "schema_version": 2}, schema, schema["$defs"])


def test_a_wrong_type_within_is_found() -> None:
    schema = json.loads((REFERENCE / "json" / "compare.schema.json").read_text())
    done = CliRunner().invoke(cli.tare, [*PRINTED["compare"], "--json"], catch_exceptions=False)
    for name, wrong in (("effect", "7 %"), ("verdict", "better"), ("n", 0.5), ("notes", {}), ("direction", None)):
        printed = json.loads(done.stdout)
        printed["comparisons"][0][name] = wrong
        assert faults(printed, schema, schema["$defs"]), name


def test_a_record_may_have_declared_metrics_and_may_not() -> None:
    schema = json.loads((REFERENCE / "json" / "show.schema.json").read_text())
    done = CliRunner().invoke(cli.tare, [*PRINTED["show"], "--json"], catch_exceptions=False)
    (trial, *_) = json.loads(done.stdout)["trials"]
    defs, of_record = schema["$defs"], schema["$defs"]["Record"]

    assert "declared" not in trial  # this store is older than the key
    assert faults({**trial, "declared": {"load.average": {"unit": "1"}}}, of_record, defs) == []
    assert faults({**trial, "declared": []}, of_record, defs)
    assert schema["title"] == "tare show STORE --json"


@pytest.mark.parametrize("words", ["list parts", "list workloads", "list data", "report", "report --figures"])
def test_the_version_is_in_every_json(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = [STORE] * words.startswith("report")
    done = CliRunner().invoke(cli.tare, [*words.split(), *source, "--json"], catch_exceptions=False)

    assert json.loads(done.stdout)["schema_version"] == 1


def errors_of_ours(base: type[TareError] = TareError) -> list[type[TareError]]:
    return [base, *(each for below in base.__subclasses__() for each in errors_of_ours(below))]


def test_every_error_has_a_code_of_the_contract() -> None:
    assert {each.exit_code for each in errors_of_ours()} <= {*EXIT_CODES}
    page = (REFERENCE / "codes.md").read_text()
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == [*EXIT_CODES]


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (TareError("x"), 1), (errors.StudyError("x"), 2), (errors.ObstacleError("x"), 3), (errors.StoreError("x"), 4),
        (errors.NotRestoredError("x"), 70), (errors.BusyError("x"), 75), (errors.NotPermittedError("x"), 77),
        (KeyboardInterrupt(), 130), (SystemExit(1), 1),
    ],
)  # fmt: skip
def test_the_command_line_ends_with_it(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(**_: object) -> None:
        raise raised

    monkeypatch.setenv("TARE_STATE", str(tmp_path))
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(cli.tare, "main", stopped)
    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == code


def tare(*words: str, before: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "tare", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **env}, timeout=120)


def test_real_commands_end_with_it(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{side},{n},{value * (1 + n / 1e4)}" for n in range(12) for side, value in (("old", 1), ("new", 2))]
    table.write_text("\n".join(["side,night,seconds", *rows]) + "\n")
    gate = ["compare", str(table), "--by", "side", "--against", "old", "--metric", "seconds", "--block", "night"]
    gate += ["--order", "shuffled", "--fail-over"]
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "store.json").write_text("{")
    ended = {
        code: tare(*words).returncode
        for code, words in {
            0: ["compare", str(table), "--by", "side", "--against", "new", *gate[6:], "5%"], 1: [*gate, "5%"],
            2: ["compare", "--no-such"],
            3: ["plan", "s3-dvfs", "--scale", "smoke"], 4: ["show", str(broken)],
        }.items()
    }  # fmt: skip

    assert ended == {code: code for code in ended}


def _without_network() -> tuple[str, ...]:
    for words in (("unshare", "--net"), ("unshare", "--map-root-user", "--net")):
        if subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0:
            return words
    pytest.skip("no namespace of its own for the network can be made here")


def test_it_works_with_the_network_cut(tmp_path: Path) -> None:
    cut = _without_network()
    study = tmp_path / "study.yaml"
    study.write_text("study: small\nplatform: bare\nworkload: {command: {argv: ['true']}}\nrepeat: 2\n")
    env = {"TARE_STATE": str(tmp_path / "state"), "TARE_LOCK_DIR": str(tmp_path / "locks")}
    out = str(tmp_path / "out")
    for words in (["list", "studies"], ["doctor"], ["run", str(study), "-o", out], ["compare", STORE], ["report", out]):
        done = tare(*words, before=cut, **env)
        assert done.returncode == 0, (words, done.stderr)


def test_the_plug_in_of_pytest_imports_nothing_of_ours_before_it_is_used() -> None:
    code = "import pytest, sys; before = {*sys.modules}; import tare.api.pytest_plugin; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    imported = {*done.stdout.split()}

    ours = {each for each in imported if each.partition(".")[0] == "tare"}
    assert ours == {"tare", "tare.api", "tare.api.pytest_plugin"}
    assert not {each.partition(".")[0] for each in imported} - {"tare", *sys.stdlib_module_names}
