"""The GitHub Action and the hook of pre-commit: their steps are executed, with a stand-in for the forge alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
ACTION = YAML(typ="safe").load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
_GH = """#!/usr/bin/env python3
import json, pathlib, sys
log = pathlib.Path(LOG)
body = [each.partition("body=@")[2] for each in sys.argv if each.startswith("body=@")]
text = pathlib.Path(body[0]).read_text() if body else ""
log.write_text(log.read_text() + json.dumps([*sys.argv[1:], text]) + "\\n")
if "--paginate" in sys.argv: print(OWN)
elif FORBIDDEN: sys.exit("HTTP 403: Resource not accessible by integration")
"""


class Runner:
    """What a runner gives the steps of an action: contexts, files, and a `gh`."""

    def __init__(self, folder: Path, own: str = "", forbidden: bool = False, **contexts: str) -> None:
        self.folder, self.outputs, self.log = folder, folder / "outputs", folder / "gh.log"
        self.summary = folder / "summary.md"
        self.log.write_text("")
        self.outputs.write_text("")
        inputs = {f"inputs.{name}": str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
        self.contexts = {
            **inputs, "inputs.tare": f"{Path(sys.executable).parent / 'tare'}", "github.token": "t",
            "github.repository": "them/app", "github.event.pull_request.head.repo.full_name": "them/app",
            "github.event.pull_request.number": "7", **contexts,
        }  # fmt: skip
        gh = folder / "bin" / "gh"
        gh.parent.mkdir()
        values = f"LOG, OWN, FORBIDDEN = {str(self.log)!r}, {own!r}, {forbidden}"
        gh.write_text(_GH.replace("\n", f"\n{values}\n", 1))
        gh.chmod(0o755)

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        step = STEPS[name]
        env = {**os.environ, "RUNNER_TEMP": str(self.folder), "GITHUB_OUTPUT": str(self.outputs)}
        env |= {"GITHUB_STEP_SUMMARY": str(self.summary), "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        env |= {key: self.filled(value) for key, value in step.get("env", {}).items()}
        assert "${{" not in step["run"]  # text of others belongs into a variable, and never into a script
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(command, check=False, capture_output=True, text=True, env=env, cwd=self.folder)

    def filled(self, text: str) -> str:
        for line in self.outputs.read_text().splitlines():
            self.contexts[f"steps.gate.outputs.{line.partition('=')[0]}"] = line.partition("=")[2]
        return re.sub(r"\$\{\{ *([^ }]+) *\}\}", lambda found: self.contexts[found[1]], text)

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def table(folder: Path, new: float, label: str = "new") -> None:
    rows = [f"{side},{n},{value * (1 + n / 1e4)}" for n in range(12) for side, value in (("old", 1.0), (label, new))]
    (folder / "times.csv").write_text("\n".join(["side,night,seconds", *rows]) + "\n")


OPTIONS = "--by\nside\n--against\nold\n--metric\nseconds\n--block\nnight\n--order\nshuffled\n"
ASKED = {"inputs.source": "times.csv\n", "inputs.fail-over": "5%", "inputs.options": OPTIONS}


@pytest.mark.parametrize(("new", "word", "code"), [(1.3, "failed", 1), (1.0001, "passed", 0)])
def test_a_slowdown_fails_and_the_same_passes(tmp_path: Path, new: float, word: str, code: int) -> None:
    runner = Runner(tmp_path, **ASKED)
    table(tmp_path, new)

    assert runner.run("gate").returncode == 0
    assert f"**{word}**" in runner.summary.read_text()
    assert (tmp_path / "tare-gate" / "junit.xml").read_text().startswith("<?xml")
    assert runner.run("comment").returncode == 0
    _, (*made, body) = runner.calls()
    assert made[2:5] == ["--method", "POST", "repos/them/app/issues/7/comments"]
    assert body.startswith("<!-- tare gate: tare -->\n")
    assert f"**{word}**" in body
    assert runner.run("pass or fail").returncode == code


def test_what_cannot_be_compared_fails_with_its_code(tmp_path: Path) -> None:
    runner = Runner(tmp_path, **ASKED)

    assert runner.run("gate").returncode == 0
    assert "Nothing could be compared (exit code 2)" in runner.summary.read_text()
    assert runner.run("pass or fail").returncode == 2


def test_its_own_comment_is_written_again(tmp_path: Path) -> None:
    runner = Runner(tmp_path, own="42", **ASKED)
    table(tmp_path, 1.3)
    runner.run("gate")
    runner.run("comment")
    looked, (*made, _) = runner.calls()

    assert '"<!-- tare gate: tare -->"' in looked[4]
    assert made[2:5] == ["--method", "PATCH", "repos/them/app/issues/comments/42"]


def test_only_a_comment_of_the_bot_is_its_own(tmp_path: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("no jq here, whose words choose the comment")
    runner = Runner(tmp_path, own="42\n43", **ASKED)
    table(tmp_path, 1.3)
    runner.run("gate")
    runner.run("comment")
    looked, (*made, _) = runner.calls()
    mark, bot = "<!-- tare gate: tare -->", "github-actions[bot]"
    comments = [("mallory", mark), (bot, "other"), (bot, mark), (bot, f"{mark} again")]
    page = [{"id": n, "user": {"login": login}, "body": f"{body}\ntext"} for n, (login, body) in enumerate(comments)]
    done = subprocess.run(["jq", looked[4]], check=True, capture_output=True, text=True, input=json.dumps(page))

    assert done.stdout.split() == ["2", "3"]
    assert made[4].endswith("comments/42")  # the first, where pages have several


@pytest.mark.parametrize("own", ["", "42"])
def test_a_comment_that_cannot_be_written_is_a_warning(tmp_path: Path, own: str) -> None:
    runner = Runner(tmp_path, own=own, forbidden=True, **ASKED)
    table(tmp_path, 1.0001)
    runner.run("gate")
    done = runner.run("comment")

    assert (done.returncode, done.stdout[:11]) == (0, "::warning::")
    assert STEPS["pass or fail"]["if"] == "always() && steps.gate.outputs.exit-code != ''"
    assert runner.run("pass or fail").returncode == 0
    (tmp_path / "bin" / "gh").write_text("#!/bin/sh\nexit 1\n")
    assert "::warning::" in runner.run("comment").stdout


def test_a_comment_that_is_too_long_is_cut_between_characters(tmp_path: Path) -> None:
    runner = Runner(tmp_path, **ASKED)
    table(tmp_path, 1.3)
    runner.run("gate")
    (tmp_path / "tare-gate" / "comment.md").write_text("x" + "é" * 80_000)

    assert runner.run("comment").stdout == ""
    body = runner.calls()[1][-1]
    assert body == "<!-- tare gate: tare -->\nx" + "é" * 29_999


def test_an_artifact_has_a_name_that_is_taken_and_replaces_its_own(tmp_path: Path) -> None:
    runner = Runner(tmp_path, **ASKED, **{"inputs.name": "app/x86:1\n"})
    runner.run("gate")

    assert runner.filled(STEPS["keep"]["with"]["name"]) == "tare-gate-app_x86_1_"
    assert STEPS["keep"]["with"]["overwrite"] is True
    assert re.fullmatch(r"actions/upload-artifact@[0-9a-f]{40}", STEPS["keep"]["uses"])


@pytest.mark.parametrize(
    "of", [{"github.event.pull_request.head.repo.full_name": "fork/app"}, {"github.event.pull_request.number": ""}]
)
def test_a_fork_and_a_push_get_the_summary_and_no_comment(tmp_path: Path, of: dict[str, str]) -> None:
    runner = Runner(tmp_path, **ASKED, **of)
    table(tmp_path, 1.3)
    runner.run("gate")

    assert runner.run("comment").returncode == 0
    assert runner.calls() == []
    assert "**failed**" in runner.summary.read_text()
    assert STEPS["keep"]["if"] == "always()"
    assert runner.filled(STEPS["keep"]["with"]["path"].replace("runner.temp", "github.token")) == "t/tare-gate"


def test_text_of_a_workload_stays_text(tmp_path: Path) -> None:
    hostile = "::error::<img src=x> @them https://evil.example www.evil.example `$(touch here)` [a](b)"
    runner = Runner(tmp_path, **ASKED)
    table(tmp_path, 1.3, hostile)
    done = runner.run("gate")
    lines = done.stdout.splitlines()
    stop = re.fullmatch(r"::stop-commands::([0-9a-f]{32})", lines[0])

    assert stop is not None
    assert lines[-1] == f"::{stop[1]}::"
    summary = runner.summary.read_text()
    assert "evil.example" in summary
    for what in ("@them", "https://", "www."):
        assert what not in summary
    assert not re.search(r"(?<!\\)[<`\[]", summary)
    assert not (tmp_path / "here").exists()


def test_nothing_runs_with_the_rights_of_the_target() -> None:
    texts = [path.read_text() for path in (ROOT / ".github").rglob("*.y*ml")]

    assert not [each for each in texts if re.search(r"^\s*(on:\s*)?\[?pull_request_target", each, re.MULTILINE)]


def hook(*files: Path) -> subprocess.CompletedProcess[str]:
    (declared,) = YAML(typ="safe").load((ROOT / ".pre-commit-hooks.yaml").read_text())
    python, *words = declared["entry"].split()
    assert (python, declared["language"], declared["types"]) == ("python", "python", ["yaml"])
    return subprocess.run([sys.executable, *words, *map(str, files)], check=False, capture_output=True, text=True)


def test_the_hook_finds_wrong_studies_and_passes_over_other_yaml(tmp_path: Path) -> None:
    right, wrong, other = (tmp_path / f"{name}.yaml" for name in ("right", "wrong", "other"))
    right.write_text("study: a\nplatform: bare\nworkload: {command: {argv: ['true']}}\n")
    wrong.write_text("study: b\nplatfrom: bare\nworkload: {command: {argv: ['true']}}\n")
    other.write_text("services: {web: {image: [}\n")

    assert hook(right, other).returncode == 0
    done = hook(right, wrong, other, tmp_path / "gone.yaml")
    assert done.returncode == 2
    assert "wrong.yaml:2" in done.stderr
    assert "gone.yaml" in done.stderr
    assert "right.yaml" not in done.stderr


@pytest.mark.parametrize("key", ["study:", '"study":', "'study':", "study :"])
def test_the_hook_knows_a_study_however_its_key_is_written(tmp_path: Path, key: str) -> None:
    (tmp_path / "wrong.yaml").write_text(f"{key} b\nplatfrom: bare\n")

    assert hook(tmp_path / "wrong.yaml").returncode == 2


def test_the_action_is_what_a_runner_reads() -> None:
    made: dict[str, Any] = ACTION["runs"]
    assert made["using"] == "composite"
    assert all("shell" in step or "uses" in step for step in made["steps"])
    used = {name for step in made["steps"] for name in re.findall(r"inputs\.([a-z-]+)", str(step))}
    assert used == {*ACTION["inputs"]}
