"""The four applications at a tiny scale: from files to answers, each part of it timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inference_jobs import SMALL, answered, application_job, make_data, spans_ns
from tare_inside import named
from tare_inside.workloads.programs import infer

APPLICATIONS = sorted(SMALL)
PHASES = ("fetch", "pre_process", "copy", "inference", "post_process")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("applications")
    make_data(folder)
    return folder


def test_every_application_is_tried_here() -> None:
    assert named.names("applications") == APPLICATIONS


@pytest.mark.parametrize("name", APPLICATIONS)
def test_the_phases_of_a_request_add_up_to_it(tmp_path: Path, data: Path, name: str) -> None:
    outcome, loaded = answered(application_job(tmp_path, data, name))
    spans = spans_ns(loaded)

    for step in range(4):
        assert all(spans[phase, step] > 0 for phase in PHASES[1:])
        assert sum(spans[phase, step] for phase in PHASES) == spans["step", step]  # each ends where the next begins
        assert spans["compute", step] == spans["inference", step]
    assert outcome["steps"] == 4
    assert json.loads(outcome["answer"] if name != "recommendation" else "1")


@pytest.mark.parametrize("name", APPLICATIONS)
def test_equal_seeds_give_equal_answers_whoever_asks_beside(tmp_path: Path, data: Path, name: str) -> None:
    alone, _ = answered(application_job(tmp_path / "alone", data, name, requests=3))
    beside, loaded = answered(application_job(tmp_path / "beside", data, name, requests=3, concurrency=2))
    other, _ = answered(application_job(tmp_path / "other", data, name, requests=3, seed=4))

    assert beside["answers_digest"] == alone["answers_digest"]
    assert other["answers_digest"] != alone["answers_digest"]
    assert sorted(step for _, mark, edge, step in loaded if (mark, edge) == ("step", "end")) == [0, 1, 2]


@pytest.mark.machine("onnxruntime")
@pytest.mark.parametrize("name", APPLICATIONS)
def test_onnx_runtime_gives_the_same_answers(tmp_path: Path, data: Path, name: str) -> None:
    eager, _ = answered(application_job(tmp_path / "eager", data, name, requests=2))
    onnx, _ = answered(application_job(tmp_path / "onnx", data, name, requests=2, backend="onnx", threads=1))

    assert onnx["answers_digest"] == eager["answers_digest"]


def test_an_answer_is_words_of_the_text(tmp_path: Path, data: Path) -> None:
    outcome, _ = answered(application_job(tmp_path, data, "question", requests=1))
    first = named.find("data", "questions").Dataset(str(data / "question"))[0]

    assert json.loads(outcome["answer"]) in first["context"]


@pytest.mark.parametrize(
    ("name", "victim", "said"),
    [
        ("image", "train/n00000000/0.JPEG", "this is not a whole picture"),
        ("speech", "dev-clean/84/121123/84-121123-0000.wav", "this is not a WAV file"),
        ("recommendation", "train_00000.txt", "a line has 1 fields instead of 40"),
        ("question", "dev-v1.1.json", "this is not SQuAD v1.1"),
    ],
)
def test_a_corrupt_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, victim: str, said: str
) -> None:
    make_data(tmp_path)
    (tmp_path / name / victim).write_bytes(b"no such thing\n" * 1000)

    code = infer.main([json.dumps(application_job(tmp_path / "workdir", tmp_path, name))])
    infer.marks.close_marks()

    error = capsys.readouterr().err
    assert code == 1
    assert error.startswith(f"tare: {tmp_path / name / victim}")
    assert said in error


@pytest.mark.parametrize("name", APPLICATIONS)
@pytest.mark.parametrize("there", [True, False])
def test_an_empty_folder_and_one_that_is_not_there_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, there: bool
) -> None:
    if there:
        (tmp_path / name).mkdir()
    code = infer.main([json.dumps(application_job(tmp_path / "workdir", tmp_path, name))])
    infer.marks.close_marks()

    assert code == 1
    assert capsys.readouterr().err.startswith(f"tare: {tmp_path / name}")


def test_a_batch_of_more_items_than_there_are_says_so(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = infer.main([json.dumps(application_job(tmp_path, data, "speech", batch=7))])
    infer.marks.close_marks()

    assert code == 1
    assert capsys.readouterr().err == f"tare: {data / 'speech'}: 7 clips are needed and there are 6.\n"
