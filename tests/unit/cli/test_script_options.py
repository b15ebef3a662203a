"""What `tare weigh` and `tare why` take for a script: its files, variables, network, and the image that it is in."""

from __future__ import annotations

import json
import re

import click
import pytest
from click.testing import CliRunner

from tare.api.studies import Script, names_files_here, sides
from tare.cli.command_line import words_of
from tare.cli.weigh import Asked, command, server_options, would_not_fit
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
    assert Script().environment(in_image=True).startswith("the command gets the image's variables; --env adds others;")
    assert "image's variables and A; tare" in Script(env={"A": "1"}).environment(in_image=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--env", "NAME", "--", "true"], "NAME=VALUE"),
        (["--env", "A=1"], "need a command"),
        (["--against-image", "a", "--", "true"], "needs --image"),
        (["--reads", "/no/such", "--", "true"], "does not exist"),
        (["--writes", "/", "--", "true"], "name its folders"),
        (["--image", "my/app"], "needs the command to run in it"),
    ],
)
def test_what_is_wrong_with_an_option_is_told_before_anything_runs(words, says):
    done = CliRunner().invoke(command, words)

    assert done.exit_code != 0
    assert says in f"{done.output} {done.exception}"


def test_nobody_is_said_to_have_set_a_time_that_is_the_default():
    assert would_not_fit(None) == "another block would not fit into tare weigh's default of 90 s (--seconds)"
    assert would_not_fit(60) == "another block would not fit into the 60 s of --seconds"


@pytest.mark.parametrize(("share", "hint"), [("0%", ""), ("100%", ""), ("5", "; did you mean 5%?")])
def test_a_share_that_is_refused_is_named_with_its_bounds(share, hint):
    ended = CliRunner().invoke(command, ["--margin", share])

    assert f"{share}: it must be more than 0 % and less than 100 %{hint}" in ended.output


def test_a_server_and_its_load_become_a_workload(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    serving = {"argv": words_of("python 'my app.py' -p 80", "--server"), "port": 80, "rate": "50/s"}
    assert Asked(None, (), serving, Script(env={"A": "1"}), None, None).workload(image=False) == {
        "server": {
            "argv": ["python", "my app.py", "-p", "80"], "cwd": str(tmp_path), "env": {"A": "1"}, "port": 80,
            "rate": "50/s",
        }
    }  # fmt: skip


def test_a_recorded_trace_and_the_goal_of_a_first_token_are_options(tmp_path):
    (tmp_path / "times").write_text("0\n1\n")

    @click.command()
    @server_options
    def verb(serving):
        click.echo(json.dumps(serving))

    words = ["--server", "app", "--port", "80", "--api", "chat", "--goal", "1s", "--goal-of", "first_token"]
    found = json.loads(CliRunner().invoke(verb, [*words, "--trace", str(tmp_path / "times")]).output)
    assert (found["arrivals"], found["trace"], found["goal_of"]) == ("trace", str(tmp_path / "times"), "first_token")
    Server.model_validate(found)


SERVED, ODD_GOALS = ["--server", "true", "--port", "80"], ("p99 > 300 ms", "p150 < 1 s", "p99 < 300", "fast", "0 s")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--port", "80"], "need --server"),
        (["--server", "python app.py"], "--server needs --port"),
        (["--server", "python app.py", "--port", "80", "--", "true"], "either --server, --workload or a command"),
        (["--server", "'", "--port", "80"], "No closing quotation"),
        *(([*SERVED, "--goal", goal], f"--goal {goal!r}: write a time (300ms), or a percentile") for goal in ODD_GOALS),
        *(
            ([*SERVED, "--rate", rate], f"--rate {rate!r}: write a rate (50/s), more than zero")
            for rate in ("0/s", "0")
        ),
        (
            [*SERVED, "--goal", "p99 < 1 s", "--count", "20"],
            "--goal 'p99 < ...' with --count 20: it takes 100 requests",
        ),
    ],
)
def test_options_of_a_server_that_do_not_go_together_are_refused(words, says):
    done = CliRunner().invoke(command, words, standalone_mode=False)
    assert says in str(done.exception)
