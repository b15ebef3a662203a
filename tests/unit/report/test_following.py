"""The next command: it continues this store, and each that is printed for a kept store can be run as it is."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from some_weighings import comparison, records, weighing
from tare.api.running import built_in, load_study
from tare.cli import tare
from tare.cli.report import endings, steps_of
from tare.cli.scaffold import weighed
from tare.records.store import Store
from tare.report.following import Source, next_steps
from tare.studies.load import at_every_scale

RESULTS = Path(__file__).parents[3] / "studies-results"
KEPT = sorted(path.relative_to(RESULTS) for path in RESULTS.glob("*/*.tare"))
READS = ("compare", "choose")  # verbs that are run on each kept store; of the others the command line is parsed


@pytest.mark.parametrize("name", KEPT, ids=str)
def test_every_command_that_is_offered_for_a_kept_store_can_be_run(name: Path):
    path = RESULTS / name
    with Store.open(path) as store:
        steps = [step.command for step in steps_of(store, weighed(store)) if step.command]
        metered = any("energy_j" in record.compared for record in store.records())
        offered = [*steps, *_endings(store.study, path, metered)]

    for command in offered:
        program, *words = shlex.split(command)
        assert program == "tare"
        if words[0] not in READS:
            _parsed(words)
        elif "--fail-over" in words:
            assert CliRunner().invoke(tare, words).exit_code in (0, 1), command
        else:
            done = CliRunner().invoke(tare, words)
            assert done.exit_code == 0, (command, done.output[-400:], done.exception)


def _endings(study: dict[str, Any], path: Path, metered: bool) -> list[str]:
    """As the study that comes with tare has them now: a kept one may name a verb as it was called then."""
    name = str(study["study"])
    if name not in built_in():
        return []
    scale = study.get("scale") or None
    known = at_every_scale(built_in()[name], trust=True)
    return endings(load_study(Path(name), scale=scale if scale in known else None).as_plain(), path, metered)


def _parsed(words: list[str]) -> None:
    """By the real command line, which refuses an option that there is not."""
    context = click.Context(tare)
    verb: click.Command = tare
    while isinstance(verb, click.Group):
        context = click.Context(verb, parent=context)
        _, found, words = verb.resolve_command(context, words)
        assert found is not None, words
        verb = found
    verb.make_context(verb.name, words, parent=context)


def test_the_command_that_adds_blocks_names_how_many_there_are_to_be_in_all():
    undecided = comparison(verdict="cannot_tell", low=-0.1, high=0.1, more_trials=4)
    found = weighing(comparisons=(undecided,))

    (step,) = next_steps(found, Source("out/weigh-1", blocks=7, block_s=30.0))
    assert step.command == "tare run out/weigh-1 --blocks 11"
    assert "about 4 more blocks, 2 min" in step.why

    (kept,) = next_steps(found, Source("kept.tare", grows=False, blocks=7))
    assert not kept.command and "11 blocks in all" in kept.why


COMMAND = [{"command": {"argv": ["python", "my train.py"], "cwd": "/home/me"}}]


def test_the_cause_is_looked_for_with_the_command_that_was_weighed():
    slower = comparison(verdict="slower", effect=0.2, low=0.1, high=0.3)
    study = {"platform": ["bare", "docker"], "workload": COMMAND}

    steps = next_steps(weighing(comparisons=(slower,)), Source("out/weigh-1", study=study))
    assert [step.command for step in steps] == ["tare why --in docker -- python 'my train.py'"]

    built_in = next_steps(weighing(comparisons=(slower,)), Source("out/weigh-1", study={"workload": "lenet5"}))
    assert not built_in[0].command and "`tare why` with the same command" in built_in[0].why


@pytest.mark.parametrize(
    ("platforms", "options"),
    [
        ([{"bare": {"image": "app:1"}}, {"docker": {"image": "app:1"}}], "--in docker --image app:1"),
        (["bare", {"runc": {"network": "host"}}], "--in runc --set platform.network=host"),
        (["bare", {"docker": {"quota": 1}}], "--in docker --limit cpus=1"),
        ([{"bare": {"cores": 1}}, "docker"], None),
        ([{"docker": {"image": ["app:1", "app:2"]}}], None),
        (["bare", "docker", "runc"], None),
        (["bare", ["qemu", "runc"]], None),
    ],
)
def test_the_cause_is_looked_for_in_the_container_that_was_weighed(platforms: list[Any], options: str | None):
    slower = comparison(verdict="slower", effect=0.2, low=0.1, high=0.3)
    study = {"platform": platforms, "workload": COMMAND}

    (step,) = next_steps(weighing(comparisons=(slower,)), Source("out/weigh-1", study=study))
    assert step.command == (f"tare why {options} -- python 'my train.py'" if options else "")


def test_suspect_trials_are_told_first_and_many_blocks_are_no_advice_alone():
    undecided = comparison(verdict="cannot_tell", low=-0.3, high=0.3, more_trials=184)

    noisy, more = next_steps(weighing(comparisons=(undecided,)), Source())
    assert "a quieter machine" in noisy.why
    assert more.command == "tare run STORE --blocks 184"
    few = next_steps(weighing(comparisons=(replace(undecided, more_trials=4),)), Source())
    assert not any("quieter" in step.why for step in few)


def test_where_a_decision_takes_too_many_blocks_the_command_says_what_fewer_see():
    undecided = comparison(verdict="cannot_tell", low=-0.074, high=0.137, mde=0.12, more_trials=126)
    (step,) = next_steps(weighing(comparisons=(undecided,)), Source("out/weigh-1", blocks=9, block_s=12.0))
    assert step.command == "tare run out/weigh-1 --blocks 27"
    assert "see a difference of 12 % in four of five runs, and 27 of them (3 min 36 s more) one of 6.8 %" in step.why
    assert "126" not in step.why


def test_trials_in_turns_take_the_time_of_their_block_once():
    held = records()[0]
    in_turns = [replace(held, start_ns=at, end_ns=10_000_000_000) for at in (0, 1_000_000_000)]

    assert Source.of(None, in_turns).block_s == 10.0
