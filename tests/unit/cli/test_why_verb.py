"""`tare why --layers`: every layer that can be named, and what is left out."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from analysis_figures import record
from some_layers import stage
from tare.analysis.model import Comparison
from tare.analysis.why.causes import QUICK, SLOW, Answer, Tried, Wave
from tare.analysis.why.layers import waterfall
from tare.base.errors import StudyError
from tare.cli import tare, why
from tare.cli.scaffold import WORDS
from tare.cli.why import Finding, runs
from tare.cli.why.runs import Stopped, Trying, are_stores, side, told
from tare.drivers.containers.isolation import USUAL
from tare.parts.platforms.runc import Runc
from tare.plan.why import Level, Stages, Suspects
from tare.report.text.why import Told, answer_lines


def test_only_mounts_is_the_container_with_no_other_layer():
    skipped = runs._skipped({}, ("mounts",))
    assert skipped.keys() == {*USUAL, "user"}
    stages = Stages({}, tuple(layer for layer in USUAL if layer not in skipped), ["docker"])
    assert stages.chain == [stages.whole] == [{"runc": {"isolation": [[]]}}]
    assert (stages.without, stages.aside) == ([], [])


def test_an_unpacked_image_is_taken_apart_with_runc_and_no_engine(monkeypatch):
    monkeypatch.setattr(Runc, "obstacles", lambda self, host: [])
    skipped = runs._skipped({"image": "/rootfs"}, ("mounts", "pid"))
    stages = runs._stages({"image": "/rootfs"}, {"image": "/rootfs"}, skipped)
    assert [each["runc"] for each in stages.chain] == [
        {"image": "/rootfs", "isolation": [layers]} for layers in ([], ["pid"])
    ]
    assert stages.engines == [] and "folder" in skipped["docker"]


def test_the_waterfall_of_mounts_alone_has_that_layer():
    records = [*stage("bare", (), 1.0, 1), *stage("runc", (), 1.3, 2)]
    found = waterfall(records, margin=0.05)
    assert [layer.layer for layer in found.layers] == ["mounts"]
    assert [layer.layer for layer in found.guilty] == ["mounts"]


def test_the_user_namespace_needs_the_layers_that_it_stands_on():
    with pytest.raises(StudyError, match="the layer user needs ipc, network, pid; name them too"):
        runs._skipped({}, ("user",))
    assert "user" not in runs._skipped({}, ("pid", "ipc", "network", "user"))


def test_without_only_a_layer_is_skipped_for_want_of_a_limit():
    assert runs._skipped({"quota": 1.0, "memory": "1GiB"}, None).keys() == {"cpuset"}


def test_a_single_store_is_not_taken_for_a_command(tmp_path):
    (tmp_path / "store.json").write_text("{}")
    with pytest.raises(StudyError, match=r"is one store: `tare why STORE STORE` explains"):
        are_stores((str(tmp_path),))
    assert not are_stores(("python", "train.py"))
    assert not are_stores(())


TIMES = {"wall_s": 9.0, "cgroup_nr_throttled": 40.0}


class Played(Trying):
    """What runs studies, with trials made up: each side takes as long as `seconds` says of its level."""

    def __init__(self, seconds: Callable[[Level], float], blocks: int = 3, stop_in: str = ""):
        super().__init__(Path("why"), {}, 6, 0.05, None)
        self.seconds, self.blocks, self.stop_in = seconds, blocks, stop_in
        self.stages: list[str] = []
        self.taken: dict[str, int] = {}

    def records(self, stage, platforms, fields, enough=None, *, with_other=True):
        self.stages.append(stage)
        if stage == "where":  # one run of each, looked at
            levels = [self.level(each) for each in platforms]
            seen = [{"a.py:load": [self.seconds(level), self.seconds(level)]} for level in levels]
            return [
                record(step_s=None, settings=level.settings(), facts={"stacks": each})
                for level, each in zip(levels, seen, strict=True)
            ]
        levels = [self.quick, *(self.level(each) for each in platforms)]
        made, noise = [], random.Random(stage)
        for block in range(self.most):
            if block >= fields["repeat"]["min"] and enough(made):
                break
            if stage == self.stop_in and block == 2:
                raise Stopped(made)
            for level in levels:
                taken = self.seconds(level) * (1 + noise.gauss(0, 0.01))
                times = {**TIMES, "step_mean_s": taken}
                made.append(record(block=block, step_s=None, settings=level.settings(), metrics=times))
            self.taken[stage] = block + 1
        return made

    def level(self, plain: Any) -> Level:
        if isinstance(plain, str):
            return Level(plain, {})
        name, fields = next(iter(plain.items()))
        return Level(name, {key: value[0] if isinstance(value, list) else value for key, value in fields.items()})


def by_quota(level: Level) -> float:
    return 5.3 if level.fields.get("quota") else 1.0


def test_a_quota_is_named_with_its_cure_after_as_few_blocks_as_show_it():
    run = Played(by_quota)
    found = Finding(run).explained("runc", {"quota": 0.5}, quiet=True)

    assert found.answer is not None and found.answer.explained
    assert [each.cause for each in found.answer.causes] == ["cpu_quota"]
    assert run.stages == ["look", "tried-1"] and set(run.taken.values()) == {2}


def test_what_no_suspect_explains_is_located_by_one_more_run_of_each_side_that_is_not_timed():
    run = Played(lambda level: 5.0 if level.platform == "runc" else 1.0)
    finding = Finding(run)
    found = finding.explained("runc", {}, quiet=True)
    assert found.unexplained and found.where is None

    found = finding.placed()
    assert run.stages[-1] == "where" and len(run.waves) == len(run.stages) - 1
    assert "Where: most of it is in load() of a.py (1.00 s -> 5.00 s)." in why._text(found, run, verbose=False)


def test_it_says_which_files_each_side_runs_and_what_is_therefore_not_compared():
    run = Trying(Path("why"), {"command": {"argv": ["app"], "in_image": True}}, 6, 0.05, None, "app:1")
    assert "its software is not compared" in run.files
    assert run.quick.fields == {"image": "app:1"}
    host = Trying(Path("why"), {"command": {"argv": ["app"]}}, 6, 0.05, None, "app:1")
    assert host.files.startswith("The container runs the software of app:1, and bare metal this machine's")
    assert Trying(Path("why"), {}, 6, 0.05, None).files == ""


def test_a_far_larger_suspect_is_tried_before_the_filter_and_the_layers():
    run = Played(by_quota)
    found = Finding(run).explained("runc", {"quota": 0.5, "seccomp_profile": "/dead.json"}, quiet=True)

    assert next(iter(found.suspects.held)) == "cpu_quota"
    assert found.untried and "seccomp" in found.untried


def test_stopped_in_the_middle_of_the_proof_it_says_what_is_sure_and_who_is_suspected():
    noise = random.Random(1)
    run = Played(lambda level: by_quota(level) * noise.uniform(0.5, 1.5), stop_in="tried-1")
    finding = Finding(run)
    with pytest.raises(KeyboardInterrupt):
        finding.explained("runc", {"quota": 0.5}, quiet=True)

    found = finding.so_far()
    assert found.total.verdict == "slower" and [wave.is_whole for wave in run.waves] == [True, True]
    told = why._text(found, run, verbose=False, marked=True)
    assert "Slower (sure): " in told and "(bare metal)" in told
    assert "(not yet proved): the CPU quota: a quota of 0.5 cores" in told
    assert "Try: --cpus 1" in told


def test_stopped_before_both_sides_have_run_it_says_so_and_how_to_go_on(capsys):
    run = Played(by_quota)
    run.waves.append(Wave([], {QUICK: run.quick.settings(), SLOW: Level("runc", {}).settings()}))
    with click.Context(why.command) as context:
        context.meta[WORDS] = ["--", "true"]
        why._tell_stopped(Finding(run), Path("out/why-1"), as_json=False, verbose=False)

    assert "nothing is known yet" in capsys.readouterr().err


def test_where_both_sides_are_alike_nobody_is_accused_and_no_further_block_is_run():
    found = Finding(run := Played(lambda level: 1.0)).explained("runc", {"quota": 0.5}, quiet=True)

    assert found.answer is None and found.total.verdict == "equivalent"
    assert run.stages == ["look"] and run.taken["look"] < 12


def by_tracemalloc(level: Level) -> float:
    return 9.0 if (level.fields.get("env") or {}).get("PYTHONTRACEMALLOC") else 1.0


def test_a_suspect_that_was_tried_is_not_named_as_untried():
    fields = {"quota": 0.5, "env": {"PYTHONTRACEMALLOC": "1", "APP_CHECKS": "1"}}
    found = Finding(Played(by_tracemalloc)).explained("runc", fields, quiet=True)

    assert {"debug_variables", "cpu_quota"} <= found.suspects.held.keys()
    assert "other_variables" in found.untried
    assert "debug_variables" not in found.untried


def test_of_two_images_the_software_is_where_the_cost_is_and_never_the_cause():
    run = Played(lambda level: 9.0 if level.fields.get("image") == "/app-2" else 1.0)
    run.other_side("runc", {"image": "/app-1"}, ("/app-2", "/app-1"))
    found = Finding(run).explained("runc", {"image": "/app-2"}, quiet=True)

    assert found.total.verdict == "slower" and run.sides == ("app-2", "app-1")
    assert found.answer.causes == () and found.located == ("software",)
    software = found.suspects.held["software"]
    assert software.without == {"image": "/app-1", "dockerfile": None}
    about = told(found.suspects, {}, {}, found.phases, found.located)
    assert list(answer_lines(found.answer, about, run.sides))[1:] == [
        ("Cause", "it is in the image's software: which software it has was not recorded."),
        ("Proof", "without it both sides are the same."),
        ("Left", "what of it costs is not known."),
    ]


@pytest.mark.parametrize("word", ["the cause", "a part"])
def test_what_exchanges_many_things_at_once_is_located_and_the_layers_are_not_run_for_it(word):
    total = Comparison("step_mean_s", SLOW, QUICK, 8.0, 7.0, 9.0, "slower", 0.05, 6, None)
    found = Answer("step_mean_s", total, (Tried("software", "located", None, None),))

    assert found.causes == () and not found.explained
    assert not why.Explained(total, (), Suspects({}, {}), found).unexplained
    names = ("software", "software:/a.py")
    parts = Answer("step_mean_s", total, tuple(Tried(name, "located", None, None) for name in names))
    said = (
        dict.fromkeys(names, "the image's software"),
        {names[0]: "the images differ.", names[1]: "/a.py is not same."},
    )
    cause = dict(answer_lines(parts, Told(*said, {}, {}, {})))["Cause"]
    assert cause == "it is in the image's software: /a.py is not same."
    named = Answer("step_mean_s", total, (Tried("software", word, None, None),))
    assert [each.cause for each in named.causes] == ["software"]


@pytest.mark.parametrize(
    ("words", "resumes"),
    [
        ("--limit cpus=0.5 -- python 'my app.py'", "tare why -o out/why-1 --limit cpus=0.5 -- python 'my app.py'"),
        ("-o mine -- true", "tare why -o mine -- true"),
        ("-omine -- true", "tare why -omine -- true"),
        ("--output=mine -- true", "tare why --output=mine -- true"),
        ("-- python train.py -o out", "tare why -o out/why-1 -- python train.py -o out"),
    ],
)
def test_how_to_go_on_is_the_command_with_the_folder(words: str, resumes: str):
    with why.command.make_context("why", shlex.split(words)):
        assert why._resumes(Path("out/why-1")) == f"This resumes:\n  {resumes}"


def test_how_to_go_on_shows_no_secret():
    words = ["--set", "workload.env.HF_TOKEN=hf_mine", "--", "python", "train.py", "--api-key", "abcdef"]
    with why.command.make_context("why", words):
        told = why._resumes(Path("out/why-1"))

    assert "hf_mine" not in told and "abcdef" not in told
    assert told.startswith("This resumes, with each secret in place of its `hmac:...`:\n")
    assert "--set workload.env.HF_TOKEN=hmac:" in told and "--api-key hmac:" in told


def test_later_studies_have_a_limit_that_follows_the_slower_side():
    """An 8x slower side was stopped by a limit taken from the quick one."""
    run = Trying(Path("why"), {"command": ["true"]}, 6, 0.05, None)

    assert run.plain("look", [], {})["rehearse"] and "limit" not in run.plain("look", [], {})
    run.note_lengths([record(phases={"run": 50.0}), record(platform="runc", phases={"run": 400.0})])
    assert run.plain("tried-1", [], {})["limit"] == "1260 s"


@pytest.mark.parametrize(
    ("words", "why_not"),
    [
        (("--against-image", "app:1"), "name the slow one by --image"),
        (("--image", "/", "--against-image", "/", "--in", "runc", "--layers", "always"), "not against an image"),
    ],
)
def test_an_image_to_compare_with_needs_another_one_and_no_layers(words, why_not):
    done = CliRunner().invoke(tare, ["why", *words, "--", "true"])

    assert isinstance(done.exception, StudyError) and why_not in str(done.exception), done.output


def test_of_several_variables_the_one_that_costs_is_named_and_what_holds_them_all_is_not():
    def seconds(level: Level) -> float:
        return 9.0 if (level.fields.get("env") or {}).get("APP_C") else 1.0

    run = Played(seconds)
    found = Finding(run).explained("runc", {"env": {f"APP_{name}": "1" for name in "ABCD"}}, quiet=True)

    outcomes = {each.cause: each.outcome for each in found.answer.tried}
    assert [each.cause for each in found.answer.causes] == ["other_variables:APP_C"]
    assert outcomes["other_variables"] == "located"


def test_a_store_of_a_line_is_explained_where_its_engine_is_not_installed():
    settings = {"platform": "own", "platform.line": "/no/such/docker run --cpus 1 app:1 true"}

    assert side("store", settings, []).fields == {"line": settings["platform.line"]}
