"""What `tare weigh` and `tare why` take for a script: its files, variables, network, and the image that it is in."""

from __future__ import annotations

import json
import re

import click
import pytest
from click.testing import CliRunner

from tare.api.studies import Script, names_files_here, sides
from tare.cli.asked import Asked, asked_workload, load_option, slo_option, trial_limit_option, workload_options
from tare.cli.command_line import words_of
from tare.cli.fields import Fields
from tare.cli.weigh import command, would_not_fit
from tare.parts.workloads.command import Command
from tare.parts.workloads.server import Server


def test_a_script_is_run_where_we_are_with_what_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = Script((tmp_path,), (tmp_path,), {"A": "1"}, "host", keep_outputs=True)

    work = Command(**given.workload(("true",))["command"])

    assert (work.cwd, work.reads, work.writes, work.env) == (tmp_path, (tmp_path,), (tmp_path,), {"A": "1"})
    assert (work.outputs(), work.folder(), work.keeps_outputs()) == ((tmp_path,), tmp_path, True)
    assert given.platform() == {"network": "host"}
    assert not work.in_image


def test_code_that_is_only_in_the_image_is_the_images_and_a_file_here_is_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")

    assert Script().workload(("python3", "/app/train.py"), image=True)["command"]["in_image"]
    assert Script().workload(("python3", "train.py"), image=True)["command"]["cwd"] == str(tmp_path)
    assert not names_files_here(("python3", "--out", "/etc", ""))


def test_bare_metal_runs_in_the_same_image_and_two_images_are_compared_with_each_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.tar").write_text("")

    levels, against = sides("docker", {}, "app.tar", None, command=True)
    assert levels == [{"bare": {"image": f"{tmp_path}/app.tar"}}, {"docker": {"image": f"{tmp_path}/app.tar"}}]
    assert against == {"against": {"platform": "bare"}}
    assert "the same bytes on both sides" in capsys.readouterr().err

    levels, against = sides("docker", {}, "my/app:2", "my/app:1", command=True)
    assert levels == [{"docker": {"image": ["my/app:1", "my/app:2"]}}]
    assert against == {"by": "platform.image", "against": {"platform.image": "my/app:1"}}
    assert sides("docker", {}, None, None, command=True)[0] == ["bare", "docker"]
    assert sides("docker", {}, "my/app:2", None, command=False)[0][0] == "bare"


def test_the_user_is_told_which_variables_the_command_does_not_get(monkeypatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)

    assert re.search(r"but .*SSH_AUTH_SOCK.*; tare sets .*PYTHONHASHSEED", Script().environment())
    assert (
        Script()
        .environment(in_image=True)
        .startswith("the command gets the image's variables; `--set workload.env.NAME=VALUE` adds others;")
    )
    assert "image's variables and A; tare" in Script(env={"A": "1"}).environment(in_image=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "workload.env.A=1", "--mount", "/"], "need a command"),
        (["--against-image", "a", "--", "true"], "needs --image"),
        (["--mount", "/no/such", "--", "true"], "no file or folder /no/such"),
        (["--mount", "/:rw", "--", "true"], "name its folders"),
        (["--limit", "cpsu=1", "--", "true"], "Did you mean 'cpus'?"),
        (["--limit", "cpus=many", "--", "true"], "cpus=many: write a number"),
        (["--trial-limit", "soon", "--", "true"], "neither a number of steps"),
        (["--set", "platform=docker", "--", "true"], "name a field of the platform"),
        (["--set", "workload", "--", "true"], "write FIELD=VALUE"),
        (["--resume", "/no/such", "--margin", "2%"], "--margin: --resume takes what"),
        (["--resume", "/no/such"], "no store in this folder"),
        (["--image", "my/app"], "needs the command to run in it"),
    ],
)
def test_what_is_wrong_with_an_option_is_told_before_anything_runs(words, says):
    done = CliRunner().invoke(command, words)

    assert done.exit_code != 0
    assert says in f"{done.output} {done.exception}"


def test_nobody_is_said_to_have_set_a_time_that_is_the_default():
    assert would_not_fit(None) == "another block would not fit into tare weigh's default of 90 s (--budget)"
    assert would_not_fit(60) == "another block would not fit into the 60 s of --budget"


@pytest.mark.parametrize(("share", "hint"), [("0%", ""), ("100%", ""), ("5", "; did you mean 5%?")])
def test_a_share_that_is_refused_is_named_with_its_bounds(share, hint):
    ended = CliRunner().invoke(command, ["--margin", share])

    assert f"{share}: it must be more than 0 % and less than 100 %{hint}" in ended.output


def test_a_server_and_its_load_become_a_workload(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    serving = {"argv": words_of("python 'my app.py' -p 80", "--server"), "port": 80, "rate": "50/s"}
    assert Asked(None, (), serving, Script(env={"A": "1"}), None, Fields()).workload(image=False) == {
        "server": {
            "argv": ["python", "my app.py", "-p", "80"], "cwd": str(tmp_path), "env": {"A": "1"}, "port": 80,
            "rate": "50/s",
        }
    }  # fmt: skip


@click.command()
@workload_options
@trial_limit_option
@load_option
@slo_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED)
@asked_workload
def asked_verb(asked):
    click.echo(json.dumps(asked.workload(image=False)))


def test_a_load_a_goal_and_fields_of_the_study_make_a_server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "times").write_text("0\n1\n")
    (tmp_path / "asks").write_text("/\n")
    words = ["--server", "app", "--port", "80", "--set", "workload.api=chat", "--set", "workload.requests=asks"]
    words += ["--slo", "first_token 1s", "--load", "replay:times", "--set", "workload.env.A=1"]

    server = json.loads(CliRunner().invoke(asked_verb, words).output)["server"]

    assert (server["arrivals"], server["trace"], server["goal_of"]) == ("trace", f"{tmp_path}/times", "first_token")
    assert (server["goal"], server["requests"], server["env"]) == ("1s", f"{tmp_path}/asks", {"A": "1"})
    Server.model_validate(server)


def test_each_trial_ends_where_the_limit_says():
    for text, ends in (("200steps", {"steps": 200}), ("3min", {"minutes": 3}), ("90 s", {"minutes": 1.5})):
        done = CliRunner().invoke(asked_verb, ["--trial-limit", text, "--", "true"])
        assert json.loads(done.output)["command"].items() >= ends.items()


SERVED, ODD_GOALS = ["--server", "true", "--port", "80"], ("p99 > 300 ms", "p150 < 1 s", "p99 < 300", "fast", "0 s")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--port", "80"], "need --server"),
        ([*SERVED, "--load", "many"], "write inflight:4, rate:50/s or replay:FILE"),
        ([*SERVED, "--load", "replay:/no/such"], "no file /no/such"),
        (["--server", "python app.py"], "--server needs --port"),
        (["--server", "python app.py", "--port", "80", "--", "true"], "either --server, --workload or a command"),
        (["--server", "'", "--port", "80"], "No closing quotation"),
        *(([*SERVED, "--slo", goal], f"--slo {goal!r}: write a time (300ms), or a percentile") for goal in ODD_GOALS),
        *(
            ([*SERVED, "--load", f"rate:{rate}"], f"--load rate:{rate!r}: write a rate (50/s), more than zero")
            for rate in ("0/s", "0")
        ),
        (
            [*SERVED, "--slo", "p99 < 1 s", "--set", "workload.count=20"],
            "--slo 'p99 < ...' with 20 requests: it takes 100 or more",
        ),
    ],
)
def test_options_of_a_server_that_do_not_go_together_are_refused(words, says):
    done = CliRunner().invoke(command, words, standalone_mode=False)
    assert says in str(done.exception)
