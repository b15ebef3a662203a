"""What all verbs have in common: their number, their help, names that were mistyped, options, damaged trials.

A line for whoever waits, on a terminal alone, gone at the end.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import recorded_stores
from paper_results import write_store
from tare.base.errors import StoreError, StudyError, TareError
from tare.cli import SECTIONS, VERBS
from tare.cli import tare as root
from tare.cli.list import data as list_data
from tare.cli.retired import OPTIONS
from tare.cli.scaffold import SHARE, STORE, spinner
from tare.records.store import Store

RECORDED = recorded_stores.ENERGY


def invoke(*words: str) -> Result:
    return CliRunner().invoke(root, list(words), standalone_mode=False)


def walk(command: click.Command = root, path: str = "") -> list[tuple[str, click.Command]]:
    """Every verb by its words, with those of the groups."""
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return [pair for name, each in found.items() if each for pair in walk(each, f"{path} {name}".strip())]


ALL = dict(walk())


# Help


def test_help_fits_a_screen():
    lines = CliRunner().invoke(root, ["--help"], terminal_width=80, prog_name="tare").stdout.splitlines()
    assert len(lines) <= 31
    assert max(map(len, lines)) <= 80
    assert len(VERBS) == 15
    assert all(f"{section}:" in lines for section in SECTIONS)
    assert all(any(line.startswith(f"  {verb} ") for line in lines) for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_line_of_a_group_names_every_verb_in_it(verb: str):
    command = root.get_command(click.Context(root), verb)
    assert command is not None and command.name == verb
    for inner in command.list_commands(click.Context(command)) if isinstance(command, click.Group) else ():
        assert inner in VERBS[verb]


@pytest.mark.parametrize("path", ALL)
def test_every_verb_says_what_it_does(path: str):
    help_text = ALL[path].get_short_help_str(1000)
    assert help_text.endswith((".", ")"))
    assert "  -h, --help" in invoke(*path.split(), "--help").stdout


# Names that were mistyped


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("rnu", "Did you mean `tare run`?"),
        ("wiegh", "Did you mean `tare weigh`?"),
        ("energy", "Did you mean `tare show STORE energy`?"),
        ("clean", "Did you mean `tare device clean`?"),
        ("show RECORDED enrgy", "Did you mean 'energy'?"),
        ("check", "`tare doctor` checks this device"),
        ("analyse energy x", "`tare show STORE energy`"),
        ("device fleet chek", "Did you mean 'check'?"),
        ("compare x --metirc step_s", "Did you mean '--metric'?"),
        ("run x --acept-changes", "Did you mean '--accept-changes'?"),
        ("run s0-secomp", "Did you mean 's0-seccomp'?"),
        ("run s0-seccomp --scale smal", "Did you mean 'small'?"),
        ("why --layers seccmop", "Did you mean 'seccomp'?"),
        ("list parts dokcer", "Did you mean 'docker'?"),
        ("list workloads lenet", "Did you mean 'lenet5'"),
        ("device data make cifar", "Did you mean 'cifar10'?"),
        ("weigh --in dokcer", "Did you mean 'docker'?"),
        ("compare RECORDED --metric stpe_s", "Did you mean 'step_s'?"),
        ("compare RECORDED --metric step", "Did you mean 'step_mean_s'?"),
        ("compare RECORDED --by platfrom", "Did you mean 'platform'?"),
        ("report RECORDED --figure efects -o x.pdf", "Did you mean 'effects'?"),
        ("papers tables s33", "Did you mean 's3'?"),
        ("trace simulate x --policy lrru", "Did you mean 'lru'?"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_one_that_was_meant(words: str, meant: str):
    error = invoke(*words.replace("RECORDED", str(RECORDED)).split()).exception
    assert isinstance(error, click.ClickException | StudyError)
    said = error.format_message() if isinstance(error, click.ClickException) else str(error)
    assert meant in said
    assert error.exit_code == 2


def _first_column(heading: str) -> list[str]:
    """The names in the table below this heading of the page about `tare why`."""
    page = Path(__file__).parents[3] / "docs" / "how-to" / "why-slower.md"
    section = page.read_text().partition(heading)[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name.strip(" `") for row in rows for name in row.split(",")]


def test_every_layer_that_the_docs_list_can_be_named():
    layers = _first_column("## Layer by layer")
    assert {"mounts", "seccomp", "user", "docker"} <= set(layers)
    (only,) = [param for param in ALL["why"].params if param.name == "layers"]
    assert only.type.convert(",".join(layers), None, None) == tuple(layers)


# Options

SHARED = ("--json", "--metric", "--by", "--group", "--margin")


def test_an_option_means_the_same_for_every_verb():
    """Of each of these options there is one kind of value, one name in the code and one beginning of its help."""
    seen: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for command in ALL.values():
        for param in command.params:
            if isinstance(param, click.Option) and param.opts[-1] in (
                "--json",
                "--metric",
                "--by",
                "--group",
                "--margin",
            ):
                name = (param.name or "").removesuffix("s") if param.multiple else param.name or ""
                seen[param.opts[-1]].add((name, param.type.name, (param.help or "").split("  [")[0]))
    assert {option: len(kinds) for option, kinds in seen.items()} == dict.fromkeys(seen, 1)
    assert len(seen) == 5
    assert SHARE.name in next(iter(seen["--margin"]))


def test_what_a_verb_writes_is_named_by_o():
    for path, command in ALL.items():
        for param in command.params:
            if param.name == "output":
                assert param.opts == ["-o", "--output"], path
            assert "-o" not in param.opts or param.name == "output", path


MOST_OPTIONS = 20


@pytest.mark.parametrize("path", ALL)
def test_a_verb_has_few_options(path: str):
    options = [param for param in ALL[path].params if isinstance(param, click.Option)]
    assert len(options) <= MOST_OPTIONS


@pytest.mark.parametrize(("verb", "old", "now"), [(v, o, now) for v, its in OPTIONS.items() for o, now in its.items()])
def test_an_old_option_is_refused_with_what_it_is_now(verb: str, old: str, now: str):
    command = ALL[verb.replace("STORE ", "")]
    options = {name for param in command.params for name in param.opts}
    assert now.startswith("`") or now.split()[0].split("=")[0] in options
    assert old not in options

    done = CliRunner().invoke(root, [*verb.replace("STORE", "x").split(), old], prog_name="tare")

    assert isinstance(done.exception, SystemExit) and done.exit_code == 2
    assert now in done.stderr


# Damaged trials

GIVEN = {
    "compare": ("--by", "control.power_mode.mode"), "report": ("--format", "md", "-o", "-"), "watch": ("--once",),
    "show devices": ("--by", "control.power_mode.mode"), "choose recommend": ("--steps", "100"),
    "choose predict": ("--features", "control.power_mode.gpu_mhz", "--columns", "time=step_s"),
    "papers claims": ("--paper", "s3"),
}  # fmt: skip
READ = [
    path
    for path, command in ALL.items()
    if any(each.type is STORE for each in command.params if isinstance(each, click.Argument))
]
# These look at every byte, and refuse.
REFUSE = {"store check": StoreError, "store pack": StoreError, "store verify": TareError, "store merge": StoreError}
OTHERS = {"papers tables"}  # takes a folder of stores


@pytest.fixture(scope="module")
def damaged(tmp_path_factory) -> Path:
    """A real store with one trial that is not as it was sealed."""
    place = recorded_stores.unpacked(RECORDED, tmp_path_factory.mktemp("damaged") / "store")
    damage(place)
    return place


def damage(store: Path) -> str:
    """The name of the trial's folder."""
    trial = min((store / "trials").iterdir())
    (trial / "record.json").write_bytes((trial / "record.json").read_bytes()[:-9])
    return trial.name


@pytest.mark.parametrize("words", [(), ("--json",), ("--figures",)])
@pytest.mark.parametrize("path", [each for each in READ if each not in {*REFUSE, *OTHERS}])
def test_no_verb_leaves_a_damaged_trial_out_without_a_word(path: str, words: tuple[str, ...], damaged: Path):
    if any(word not in {name for param in ALL[path].params for name in param.opts} for word in words):
        pytest.skip("no such option")
    given = () if words and path == "report" else GIVEN.get(path, ())
    done = invoke(*path.split(), str(damaged), *given, *words)
    assert isinstance(done.exception, TareError | None)  # the store may not have what the verb looks for
    assert f"{min((damaged / 'trials').iterdir()).name}/record.json" in done.output
    assert done.exception is not None or done.exit_code == 0


@pytest.mark.parametrize("path", REFUSE)
def test_verbs_that_look_at_every_byte_refuse_a_damaged_trial(path: str, damaged: Path, tmp_path: Path):
    words = []
    if path == "store merge":
        Store.create(tmp_path / "into", {"study": "h200-energy"}, "").close()
        words = [str(tmp_path / "into")]
    done = invoke(*path.split(), *words, str(damaged), *(["-o", str(tmp_path / "x.tare")] if "pack" in path else []))
    assert isinstance(done.exception, REFUSE[path])
    assert "record.json" in str(done.exception) + done.stderr


def test_a_papers_tables_name_the_store_with_the_damage(tmp_path: Path):
    study = "s0-container-tax"
    store = write_store(tmp_path / "here" / study, study, "small", {"workload.model": "lenet5"}, metrics=["compute_s"])
    trial = damage(store)
    done = invoke("papers", "tables", "s0", str(tmp_path))
    assert done.exception is None
    assert f"{trial}/record.json" in done.stderr


def test_every_verb_that_reads_a_store_is_among_them():
    assert {*REFUSE, *OTHERS, "show trials", "compare", "report", "watch", "device baseload", "trace simulate"} <= set(
        READ
    )
    assert {path for path in ALL if path.startswith(("show ", "choose"))} <= set(READ)


def test_numpy_is_loaded_with_one_thread_and_what_is_started_later_knows_nothing_of_it():
    code = (
        "import os; from tare.cli.scaffold import numpy_on_one_thread; numpy_on_one_thread(); import numpy\n"
        "numpy.linalg.solve(numpy.eye(500), numpy.eye(500))\n"
        "print(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    words = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=words)
    assert done.stdout.split() == ["1", "None"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, stream, seconds, quiet_s, term="xterm"):
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", term)
    with spinner("reading the trace", quiet_s):
        time.sleep(seconds)
    return stream.getvalue()


def test_after_a_while_it_says_what_it_does_and_takes_that_away(monkeypatch):
    text = shown(monkeypatch, Terminal(), 0.8, 0.05)
    assert "reading the trace" in text
    assert text.rstrip().endswith("\x1b[2K")  # the line is cleared


def test_what_is_quick_says_nothing(monkeypatch):
    assert shown(monkeypatch, Terminal(), 0.0, 5.0) == ""


def test_data_sets_are_wrapped_on_a_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr("tare.cli.list.width", lambda: 50)
    list_data.callback(as_json=False)
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 50
    assert any(line.startswith(" " * 11) for line in lines)


def test_a_pipe_and_a_dumb_terminal_are_left_alone(monkeypatch):
    assert shown(monkeypatch, io.StringIO(), 0.6, 0.01) == ""
    assert shown(monkeypatch, Terminal(), 0.6, 0.01, term="dumb") == ""
