"""The verbs as a user types them: data on stdout, talk on stderr, exit codes as documented."""

from __future__ import annotations

import json
import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from analysis_figures import record
from tare.base.rulings import Ruling
from tare.cli import show
from tare.records.store import Store
from typed import typed

STUDY = """\
study: tiny
platform: bare
workload: {command: [sh, -c, "exit 0"]}
probes: [cpu, cgroup]
repeat: 1
"""


def tare(*words: str, cwd: Path | None = None, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """The program's own `main`; a run, which has signals and locks of its own, in a process of its own."""
    if words[0] == "run":
        command = [sys.executable, "-m", "tare.cli", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd, timeout=120)
    else:
        done = typed(*words, cwd=cwd)
    assert code is None or done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def write_table(path: Path, effect: float, blocks: int = 10) -> Path:
    chance = random.Random(3)
    rows = ["platform,block,step_s"]
    for block in range(blocks):
        drift = 1 + 0.1 * chance.random()
        rows += [f"bare,{block},{drift * chance.gauss(1, 0.005):.6f}"]
        rows += [f"docker,{block},{drift * (1 + effect) * chance.gauss(1, 0.005):.6f}"]
    path.write_text("\n".join(rows))
    return path


def test_parts_lists_every_part_with_its_fields():
    parts = json.loads(tare("list", "parts", "--json").stdout)["parts"]
    docker = next(part for part in parts if part["name"] == "docker")
    assert docker["kind"] == "platforms"
    assert "image" in docker["fields"]


def test_to_compare_a_table_nothing_is_imported_that_only_reports_and_stores_need(tmp_path):
    table = write_table(tmp_path / "mine.csv", 0.10)
    code = "import atexit, sys, tare.cli; atexit.register(lambda: print(*sys.modules)); tare.cli.main()"
    words = ("compare", str(table), "--by", "platform", "--metric", "step_s", "--block", "block")
    done = subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True, text=True)
    assert not {"jinja2", "scipy", "sqlite3", "duckdb", "pydantic"} & {*done.stdout.split()}


def test_a_table_of_ones_own_is_compared_without_a_store(tmp_path):
    table = write_table(tmp_path / "mine.csv", 0.10)
    words = ("compare", str(table), "--by", "platform", "--metric", "step_s", "--block", "block", "--json")
    (sorted_rows,) = json.loads(tare(*words).stdout)["comparisons"]
    (found,) = json.loads(tare(*words, "--order", "shuffled").stdout)["comparisons"]
    assert (sorted_rows["verdict"], found["verdict"]) == ("cannot_tell", "slower")
    assert found["effect"] == pytest.approx(0.10, abs=0.01)
    assert found["low"] < 0.10 < found["high"]
    assert found["n"] == 10
    assert set(found) >= {"level", "against", "effect", "low", "high", "verdict", "margin", "n", "mde", "notes"}


def test_fail_over_fails_on_a_level_that_is_slower_by_more_and_only_then(tmp_path):
    words = ("--by", "platform", "--metric", "step_s", "--block", "block", "--fail-over", "5%")
    tare("compare", str(write_table(tmp_path / "slow.csv", 0.10)), *words, code=1)
    tare("compare", str(write_table(tmp_path / "same.csv", 0.01)), *words, code=0)


def test_fail_over_does_not_ask_the_margin_and_knows_that_a_rate_is_worse_when_it_falls(tmp_path):
    words = ("--by", "platform", "--metric", "step_s", "--block", "block", "--fail-over", "2%")
    inside_the_margin = write_table(tmp_path / "little.csv", 0.03)
    tare("compare", str(inside_the_margin), *words, code=1)
    rate = tmp_path / "rate.csv"
    rate.write_text(write_table(tmp_path / "r.csv", -0.2).read_text().replace("step_s", "images_per_s"))
    words = ("--by", "platform", "--metric", "images_per_s", "--block", "block", "--fail-over", "5%")
    tare("compare", str(rate), *words, code=1)
    rate.write_text(write_table(tmp_path / "r.csv", 0.2).read_text().replace("step_s", "images_per_s"))
    tare("compare", str(rate), *words, code=0)


@pytest.mark.parametrize("option", ["--margin", "--fail-over"])
def test_five_is_not_taken_for_five_per_cent(tmp_path, option):
    table = write_table(tmp_path / "mine.csv", 0.1)
    words = ("compare", str(table), "--by", "platform", "--metric", "step_s", option, "5")
    assert "did you mean 5%?" in tare(*words, code=2).stderr


def test_fewer_than_six_blocks_get_no_interval_and_no_claim(tmp_path):
    table = write_table(tmp_path / "few.csv", 0.0, blocks=5)
    words = ("compare", str(table), "--by", "platform", "--metric", "step_s", "--block", "block", "--json")
    (found,) = json.loads(tare(*words).stdout)["comparisons"]
    assert found["low"] is None
    assert found["verdict"] == "cannot_tell"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("compare", "no-such.csv", "--metric", "x"), 2, "no-such.csv"),
        (("compare", "TABLE", "--metric", "stp_s"), 2, "step_s"),
        (("compare", "TABLE"), 2, "--metric"),
        (("compare", "TABLE", "--metric", "step_s", "--against", "podmam"), 2, "podmam"),
        (("show", "no-such-store"), 2, "no-such-store"),
        (("run", "no-such-study.yaml"), 2, "no such study"),
        (("plan", "BAD"), 2, "bad.yaml:2:"),
        (("weigh", "--workload", "lenet6"), 2, "lenet5"),
        (("weigh", "--in", "dokcer"), 2, "docker"),
        (("report", "no-such-store", "-o", "x.html"), 2, "no-such-store"),
        (("why", "--desing", "slices"), 2, "No such option '--desing'.\n"),
        (("weigh", "--blokcs", "7"), 2, "Did you mean '--blocks'?"),
        (("store",), 2, "Usage: tare store"),
        (("report", "STORE", "-o", "page.xyz"), 2, "-o page.xyz: no report ends in .xyz. Name one of: html"),
        (
            ("why", "--server", "./app", "--port", "80", "--set", "workload.goal=p99 < 300 ms"),
            2,
            "give `tare why` a time alone",
        ),
    ],
)
def test_bad_input_gets_a_clear_error_and_its_exit_code(tmp_path, words, code, says):
    table = write_table(tmp_path / "mine.csv", 0.0)
    bad = tmp_path / "bad.yaml"
    bad.write_text("study: x\nplatfrom: bare\nworkload: null_\n")
    Store.create(tmp_path / "store", {}, "").close()
    given = [{"TABLE": str(table), "BAD": str(bad), "STORE": "store"}.get(word, word) for word in words]
    assert says in tare(*given, cwd=tmp_path, code=code).stderr


def test_plan_lists_the_trials_and_runs_nothing(tmp_path):
    (tmp_path / "tiny.yaml").write_text(STUDY.replace("repeat: 1", "repeat: 3"))
    planned = json.loads(tare("plan", "tiny.yaml", "--json", cwd=tmp_path).stdout)
    assert len(planned["trials"]) == 3
    assert planned["seconds"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.yaml"]


def test_a_plan_of_what_this_device_cannot_run_is_printed_and_ends_as_check_does(tmp_path):
    missing = STUDY.replace('[sh, -c, "exit 0"]', "[no-such-program]")
    (tmp_path / "odd.yaml").write_text(missing)
    planned = tare("plan", "odd.yaml", "--json", cwd=tmp_path, code=2)
    told = json.loads(planned.stdout)
    assert len(told["trials"]) == 1
    assert any("no-such-program" in each["sentence"] for each in told["obstacles"])
    assert "odd.yaml: a command, or a file that it names, cannot be used:" in planned.stderr
    text = tare("plan", "odd.yaml", cwd=tmp_path, code=2)
    assert text.stdout.startswith("tiny: 1 trial, about ")  # the sum comes first
    assert "no-such-program" in text.stderr


def test_a_plan_of_which_nothing_is_left_is_printed_as_written_and_says_what_stops_it(tmp_path):
    missing = STUDY.replace('[sh, -c, "exit 0"]', "[no-such-program]")
    (tmp_path / "odd.yaml").write_text(missing + "missing: leave_out\n")
    told = json.loads(tare("plan", "odd.yaml", "--json", cwd=tmp_path, code=3).stdout)
    assert len(told["trials"]) == 1
    assert any("no-such-program" in each["sentence"] for each in told["obstacles"])
    text = tare("plan", "odd.yaml", cwd=tmp_path, code=3)
    assert text.stdout.startswith("tiny: 1 trial, about ")
    assert "\nblock  trial" in text.stdout
    assert "note: 1 block is too few" in text.stderr
    assert "nothing of tiny can be measured here:\n" in text.stderr
    assert "nothing was run" not in text.stderr
    assert "nothing was run" in tare("run", "odd.yaml", cwd=tmp_path, code=3).stderr


def test_figures_of_what_is_no_usable_store_name_it_and_not_this_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    assert tare("report", "empty", "--figures", cwd=tmp_path, code=4).stderr.startswith(
        "tare: empty: this folder is empty."
    )
    assert tare("report", "gone/store", "--figures", cwd=tmp_path, code=2).stderr.startswith(
        "tare: gone/store: no such"
    )
    (tmp_path / "bad.yaml").write_text(STUDY.replace("exit 0", "exit 3"))
    tare("run", "bad.yaml", "-o", "store", cwd=tmp_path, code=1)
    listed = tare("report", "store", "--figures", cwd=tmp_path)
    assert (listed.stdout, "store: nothing to draw" in listed.stderr) == ("", True)


def test_a_study_is_run_shown_reported_and_not_run_again(tmp_path):
    (tmp_path / "tiny.yaml").write_text(STUDY)
    ran = tare("run", "tiny.yaml", "-o", "store", cwd=tmp_path, code=None)
    trial = json.loads(tare("show", "store", "--json", cwd=tmp_path).stdout)["trials"][-1]  # noisy: maybe run again
    assert trial["state"] in ("ok", "suspect", "invalid")
    assert ran.returncode == (1 if trial["state"] == "invalid" else 0)
    assert trial["metrics"]["wall_s"] > 0
    one = json.loads(tare("show", "store", trial["trial"][:6], "--json", cwd=tmp_path).stdout)
    assert any(series["channel"] == "cpu.busy_s" for series in one["series"])
    assert "block 0" in tare("show", "store", trial["trial"][:6], cwd=tmp_path).stdout
    tare("report", "store", "-o", "page.html", cwd=tmp_path)
    assert "<html" in (tmp_path / "page.html").read_text()
    again = tare("run", "tiny.yaml", "-o", "store", cwd=tmp_path, code=ran.returncode)
    assert "[1/" not in again.stderr
    (tmp_path / "tiny.yaml").write_text(STUDY.replace("repeat: 1", "repeat: 2"))
    assert "declared before it" in tare("run", "tiny.yaml", "-o", "store", cwd=tmp_path, code=2).stderr
    changed = STUDY.replace("exit 0", "exit 0 # changed")
    (tmp_path / "tiny.yaml").write_text(changed)
    assert "--accept-changes" in tare("run", "tiny.yaml", "-o", "store", cwd=tmp_path, code=2).stderr


def test_a_command_that_fails_is_said_with_its_own_words_and_exit_1(tmp_path):
    (tmp_path / "bad.yaml").write_text(STUDY.replace("exit 0", "echo out of cheese >&2; exit 3"))
    tare("run", "bad.yaml", "-o", "store", cwd=tmp_path, code=1)
    (trial,) = json.loads(tare("show", "store", "--json", cwd=tmp_path).stdout)["trials"]
    assert trial["state"] == "failed"
    assert "code 3: out of cheese" in trial["reasons"][0]["sentence"]
    assert trial["reasons"][0]["code"] == "workload.exit"


def test_rehearsals_are_shown_by_what_sets_them_apart_and_why_they_failed():
    why = Ruling("workload.exit", "failed", "workload", "the workload ended with code 1: no module named torch")
    fine, bad = record("bare"), record("docker", state="failed", reasons=[why])
    assert [line.split(" ", 3)[3] for line in show._rehearsed([fine, bad])] == ["bare: ok", f"docker: failed: {why}"]


def test_restore_with_nothing_to_do_says_so():
    assert "as it was found" in tare("device", "restore").stderr
    assert json.loads(tare("device", "restore", "--dry-run", "--json").stdout)["clean"] is True


def test_check_answers_in_sentences():
    found = json.loads(tare("doctor", "--json").stdout)
    assert all(ability["why"].endswith(".") for ability in found["abilities"])
    assert {"platforms", "workloads", "controls", "probes"} <= found.keys()
    for platform in found["platforms"]:
        assert {"name", "ok", "obstacles", "facts"} == platform.keys()
        assert platform["ok"] == (platform["obstacles"] == [])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there_for_each_shell(shell):
    assert "_TARE_COMPLETE" in tare("--completion", shell).stdout


def test_a_closed_pipe_is_no_traceback():
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m tare.cli list parts | head -n 1",
        check=False,
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("controls")
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("verb", ["--version", "list parts", "list parts --json", "plan --help"])
def test_output_that_cannot_be_written_is_one_line_and_no_success(verb):
    line = f"{shlex.quote(sys.executable)} -m tare.cli {verb}"
    full = subprocess.run(f"{line} >/dev/full", check=False, shell=True, capture_output=True, text=True, timeout=60)
    assert full.returncode == 3
    assert full.stderr == "tare: the output could not be written: No space left on device.\n"
    closed = subprocess.run(f"{line} >&-", check=False, shell=True, capture_output=True, text=True, timeout=60)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_an_error_keeps_its_exit_code_where_nobody_reads_it():
    line = f"{shlex.quote(sys.executable)} -m tare.cli show /no/such/store 2>&-"
    assert subprocess.run(line, check=False, shell=True, stdout=subprocess.DEVNULL, timeout=60).returncode == 2
