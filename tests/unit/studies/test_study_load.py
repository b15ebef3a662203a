"""From a file to a study."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stand_in_parts import instead_of_find, stand_ins
from tare.base.errors import StudyError
from tare.studies import load as file
from tare.studies.load import from_plain, load, loads
from tare.studies.model import Study

EXAMPLE = """\
study: platform-overhead            # id
about: What does each platform cost?
platform: [bare, docker, {docker: {image: my:tag}}, [qemu, docker]]
workload:
  torch_train: {model: lenet5, batch: [16, 64], workers: [0, 2], epochs: 3}
control: {page_cache: cold, cpu: {online: [0, 1]}}
probes: [cpu, memory, disk, cgroup: {depth: 2}]
repeat: {min: 6, max: 20, until: 2%}
order: {shuffle: true, seed: 7}
compare: {against: {platform: bare}, by: platform, margin: 5%, metric: step_s}
exclude: [{platform: docker, workload.batch: 64}]
aa: true
limit: 10 min
period: 100 ms
"""
SMALL = "study: s\nplatform: [bare, docker]\nworkload: torch_train\n"


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    with stand_ins():
        yield


def test_the_example_of_the_design_loads() -> None:
    study = loads(EXAMPLE)

    assert study.study == "platform-overhead"
    assert [[choice.name for choice in stack] for stack in study.platforms] == [
        ["bare"], ["docker"], ["docker"], ["qemu", "docker"],
    ]  # fmt: skip
    assert dict(study.workloads[0].levels)["batch"] == (16, 64)
    assert dict(study.controls[1][0].levels)["online"] == ([0, 1],)
    assert (study.repeat.min, study.repeat.max, study.repeat.until) == (6, 20, 0.02)
    assert (study.order.shuffle, study.order.seed) == (True, 7)
    assert (study.compare.against, study.compare.by) == ({"platform": "bare"}, "platform")
    assert (study.compare.margin, study.compare.metric) == (0.05, "step_s")
    assert (study.aa, study.limit_s, study.period_s) == (True, 600.0, 0.1)


def test_a_file_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(SMALL)

    assert load(path).study == "s"
    assert load(path).source.at("workload") == f"{path}:3: "


def test_a_byte_order_mark_and_any_line_ends_are_accepted() -> None:
    plain = loads(SMALL)

    assert loads(b"\xef\xbb\xbf" + SMALL.encode()) == plain
    assert loads(SMALL.replace("\n", "\r\n")) == plain
    assert loads(SMALL.replace("\n", "\r")) == plain


def test_where_a_study_was_written_is_no_part_of_what_it_says() -> None:
    assert (
        loads(SMALL, "a.yaml")
        == loads(f"# moved\n\n{SMALL}", "b.yaml")
        == Study.model_validate({"study": "s", "platform": ["bare", "docker"], "workload": "torch_train"})
    )


def test_the_workload_called_null_needs_no_quotes() -> None:
    for written in ("null", "'null'", "[null]", "{null: }", "\n  null:", "\n  - null"):
        assert loads(f"study: s\nplatform: bare\nworkload: {written}\n").workloads[0].name == "null"


def test_free_text_may_hold_anything_that_is_text() -> None:
    about = "</script><img src=x onerror=alert(1)> =cmd|' \u202e \U0001f600"

    assert loads(SMALL + f'about: "{about}"\n').about == about


def test_everything_wrong_is_said_at_once_in_the_order_of_the_lines() -> None:
    with pytest.raises(StudyError) as caught:
        loads("limit: 3\nstudy: -x\nplatform: nowhere\nworkload: {torch_train: {batch: 0, lr: x}}\nfoo: 1\n", "f.yaml")

    heads = [line.split(": ")[0] for line in str(caught.value).splitlines() if line.startswith("f.yaml")]
    assert heads == ["f.yaml:1", "f.yaml:2", "f.yaml:3", "f.yaml:4", "f.yaml:4", "f.yaml:5"]


def test_a_missing_file_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(SMALL)

    with pytest.raises(StudyError, match=r"No such file.*\n.*Did you mean '.*/study\.yaml'\?"):
        load(tmp_path / "stduy.yaml")


def test_a_folder_and_a_pipe_are_not_studies(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(StudyError, match="not a file"):
            load(path)


def test_a_file_is_never_read_past_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * 10_000_000)

    with pytest.raises(StudyError, match=r"big\.yaml:1: the file is too large"):
        load(path)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file.os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", str(os.getuid()))  # so that these tests also hold for a person


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_root_refuses_a_study_that_others_can_write(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(SMALL)
    path.chmod(mode)

    with pytest.raises(StudyError, match=r"study\.yaml:1: .*others can write to it.\n.*chmod go-w .*--trust"):
        load(path)
    assert load(path, trust=True).study == "s"


@pytest.mark.usefixtures("as_root")
def test_root_refuses_a_study_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(SMALL)
    path.chmod(0o600)
    found = path.stat()
    other = os.stat_result([*found[:4], 54321, *found[5:]])
    monkeypatch.setattr(file.os, "fstat", lambda descriptor: other)

    with pytest.raises(StudyError, match="belongs to user 54321"):
        load(path)
    assert load(path, trust=True).study == "s"


@pytest.mark.usefixtures("as_root")
def test_root_takes_its_own_study_and_that_of_the_one_who_called_sudo(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(SMALL)
    path.chmod(0o644)

    assert load(path).study == "s"


def test_a_person_may_use_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file.os, "geteuid", lambda: 1000)
    path = tmp_path / "study.yaml"
    path.write_text(SMALL)
    path.chmod(0o666)

    assert load(path).study == "s"


def test_a_program_gets_the_same_words_without_lines() -> None:
    with pytest.raises(StudyError) as caught:
        from_plain({"study": "s", "platform": "dokcer", "workload": {"torch_train": {"batch": 0}}}, "weigh")

    assert str(caught.value).splitlines() == [
        "weigh: no platform 'dokcer'.",
        "  Did you mean 'docker'?",
        "  Platforms here: bare, docker, qemu.",
        "weigh: torch_train.batch must be more than 0, not 0.",
    ]


def test_a_part_that_cannot_be_imported_is_named() -> None:
    def broken(kind: str, name: str) -> type:
        raise ModuleNotFoundError("No module named 'docker'")

    with (
        instead_of_find(broken),
        pytest.raises(StudyError, match=r"study:2: the platform 'bare' cannot be used here: No module named 'docker'"),
    ):
        loads(SMALL)
