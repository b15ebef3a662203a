"""Text, speech, questions and click logs on disk: real layouts, really read, and errors that name the file."""

from __future__ import annotations

import copy
import importlib
import io
import json
import math
import wave
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision_shim import import_torchvision

from tare_inside.workloads.data import criteo, questions, speech, wikipedia
from tare_inside.workloads.data.criteo import Lines, count_lines
from tare_inside.workloads.formats import make
from tare_inside.workloads.formats import tokens as words


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "wikipedia"
    make.make("wikipedia", str(folder), 40, 1, processes=1)
    return folder


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "speech"
    make.make("speech", str(folder), 22, 1, processes=1)
    return folder


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "questions"
    make.make("questions", str(folder), 230, 1)
    return folder


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "criteo"
    make.make("criteo", str(folder), 3000, 1)
    return folder


# --- WordPiece ------------------------------------------------------------------------------------------------------

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "run", "##ning", ",", "cafe", "the"]


def test_words_are_cut_into_the_longest_known_pieces_from_the_left() -> None:
    cut = words.WordPiece(PIECES)

    assert cut.numbers("Unaffable, running THE café xyz") == [5, 6, 7, 10, 8, 9, 12, 11, 1]
    assert cut.spans("the unaffable") == [(12, 0, 3), (5, 4, 13), (6, 4, 13), (7, 4, 13)]
    assert cut.numbers("a" * 101) == [1]
    assert words.WordPiece(PIECES, 6).numbers("unaffable un") == [1, 5]


SAMPLES = (
    "The 2nd café's naïve co-op -- it cost $3.50!",
    "中文 and English, mixed",
    "tabs\tand\nnew lines\u00a0here\u200b",
    "ÅNGSTRÖM straße «quoted» …",
    "semi;colons:and_under_scores",
)


@pytest.mark.parametrize("sample", SAMPLES)
def test_text_is_cut_as_the_tokeniser_of_bert_does(tmp_path: Path, sample: str) -> None:
    import_torchvision()
    pieces = words.learned("\n".join(SAMPLES[1:]), 400)
    (tmp_path / words.FILE).write_bytes(words.as_file(pieces))
    theirs = importlib.import_module("transformers").BertTokenizer(str(tmp_path / words.FILE))

    assert words.opened(str(tmp_path)).numbers(sample) == theirs(sample, add_special_tokens=False)["input_ids"]


def test_a_vocabulary_without_its_word_for_the_unknown_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / words.FILE).write_text("a\nb\n")
    with pytest.raises(ValueError, match=r"vocab\.txt: the vocabulary has no \[UNK\]"):
        words.opened(str(tmp_path))


# --- text -----------------------------------------------------------------------------------------------------------


def test_a_window_is_what_the_text_says_and_its_labels_come_one_later(text: Path) -> None:
    dataset = wikipedia.Dataset(str(text), length=64)
    tokens, labels = dataset[3]
    whole = words.opened(str(text)).numbers((text / "wiki.train.00000.tokens").read_text())

    assert tokens.shape == labels.shape == (64,)
    assert tokens.dtype == labels.dtype == torch.int64
    assert torch.equal(tokens[1:], labels[:-1])
    place = next(at for at in range(len(whole)) if whole[at : at + 64] == tokens.tolist())
    assert whole[place + 64] == labels[-1]


def test_the_windows_cover_the_text_about_once(text: Path) -> None:
    dataset = wikipedia.Dataset(str(text), length=64)
    cut = words.opened(str(text))
    there = sum(len(cut.numbers(path.read_text())) for path in text.glob("*.tokens"))

    assert len(dataset) * 64 == pytest.approx(there, rel=0.1)
    assert len({tuple(dataset[index][0].tolist()) for index in range(len(dataset))}) > 0.98 * len(dataset)


def test_the_text_looks_like_an_encyclopedia(text: Path) -> None:
    content = "".join(path.read_text() for path in sorted(text.glob("*.tokens")))
    found = content.split()
    counts = sorted(Counter(found).values(), reverse=True)

    assert 3.5 < sum(map(len, found)) / len(found) < 5.5
    assert counts[0] > 20 * counts[len(counts) // 2]  # a few words are most of it
    assert wikipedia.describe(str(text))["items"] == 40
    assert len((text / words.FILE).read_text().splitlines()) == 30522


def test_a_smaller_vocabulary_leaves_no_number_above_it(text: Path) -> None:
    dataset = wikipedia.Dataset(str(text), length=64, vocabulary=500)

    assert dataset.classes == 500
    assert max(int(dataset[index][0].max()) for index in range(30)) < 500


def test_plain_text_of_ones_own_needs_no_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Das ist ein schöner Satz, und noch einer. " * 200, encoding="utf-8")
    dataset = wikipedia.Dataset(str(tmp_path), length=16)
    seen = {number for index in range(len(dataset)) for number in dataset[index][0].tolist()}

    assert wikipedia.recognise(str(tmp_path))
    assert 5 <= len(seen) <= 12
    assert torch.equal(copy.copy(dataset)[2][0], dataset[2][0])


def test_a_text_shorter_than_a_window_is_filled_up(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("only three words")
    tokens, _ = wikipedia.Dataset(str(tmp_path), length=16)[0]

    assert tokens[3:].tolist() == [0] * 13
    assert "needs 99 windows" in (wikipedia.obstacle(str(tmp_path), 99) or "")


@pytest.mark.parametrize("content", [None, ""])
def test_a_folder_without_text_says_so(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "empty.txt").write_text(content)

    assert f"{tmp_path}: no text in it" in (wikipedia.obstacle(str(tmp_path), 1) or "")


# --- speech ---------------------------------------------------------------------------------------------------------


def test_clips_are_wav_files_of_fifteen_seconds_with_a_transcript(clips: Path) -> None:
    path = clips / "dev-clean" / "1000" / "100000" / "1000-100000-0003.wav"
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        assert file.getnframes() == 15 * 16000
    said = (path.parent / "1000-100000.trans.txt").read_text().splitlines()
    assert len(said) == 20
    assert said[3].startswith("1000-100000-0003 ")
    assert said[3] == said[3].upper()


def test_a_clip_is_read_as_sound(clips: Path) -> None:
    dataset = speech.Dataset(str(clips))
    samples, said = dataset[3]
    with wave.open(dataset.path(3)) as file:
        frames = torch.frombuffer(bytearray(file.readframes(240000)), dtype=torch.int16)

    assert len(dataset) == 22
    assert torch.equal(samples, frames.float() / 32768)
    assert 0.01 < float(samples.abs().mean()) < 0.3
    assert len(said.split()) > 30


def test_speech_swells_and_pauses(clips: Path) -> None:
    """Loudness over 25 ms varies a lot, as it does in speech, and unlike in noise."""
    samples = speech.Dataset(str(clips))[0][0]
    loud = samples[: 400 * 600].view(-1, 400).pow(2).mean(1).sqrt()

    assert float(loud.quantile(0.9)) > 10 * float(loud.quantile(0.05))


def wav(rate: int = 16000, channels: int = 1) -> bytes:
    into = io.BytesIO()
    with wave.open(into, "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes(bytes(3200))
    return into.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (wav()[:-100], "it says 1600 samples and has 1550"),
        (wav(rate=8000), "it has 8000 Hz, 1 channel(s) and 16 bit"),
        (wav(channels=2), "it has 16000 Hz, 2 channel(s)"),
        (b"RIFF", "this is not a WAV file"),
        (None, "it cannot be read: No such file"),
    ],
)
def test_a_clip_that_is_no_clip_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    (tmp_path / "1-2.trans.txt").write_text("1-2-0000 HELLO\n")
    if content is not None:
        (tmp_path / "1-2-0000.wav").write_bytes(content)
    problems = speech.describe(str(tmp_path))["problems"]

    assert len(problems) == 1
    assert problems[0].startswith(f"{tmp_path}/1-2-0000.wav: {said}")
    with pytest.raises(ValueError, match=r"1-2-0000\.wav"):
        speech.Dataset(str(tmp_path))[0]


def test_flac_is_to_be_turned_into_wav_first(tmp_path: Path) -> None:
    (tmp_path / "1-2.trans.txt").write_text("1-2-0000 HELLO\n")
    (tmp_path / "1-2-0000.flac").write_bytes(b"fLaC")

    assert "1-2-0000.flac: turn the FLAC files into" in (speech.obstacle(str(tmp_path), 1) or "")


# --- questions ------------------------------------------------------------------------------------------------------


def test_questions_are_squad_with_answers_where_they_say(asked: Path) -> None:
    held = json.loads((asked / "dev-v1.1.json").read_text())
    found = [question for article in held["data"] for part in article["paragraphs"] for question in part["qas"]]
    dataset = questions.Dataset(str(asked))

    assert held["version"] == "1.1"
    assert len(held["data"]) == 2
    assert len(found) == len(dataset) == 230
    assert len({question["id"] for question in found}) == 230
    assert questions.describe(str(asked))["problems"] == []
    for item in (dataset[0], dataset[229]):
        for answer in item["answers"]:
            assert item["context"][answer["answer_start"] :].startswith(answer["text"])
        assert item["question"].endswith("?")
        assert all(number > 0 for number in dataset.tokeniser().numbers(item["question"]))


def test_an_answer_that_is_elsewhere_is_found_by_looking(asked: Path, tmp_path: Path) -> None:
    held = json.loads((asked / "dev-v1.1.json").read_text())
    held["data"][0]["paragraphs"][0]["qas"][1]["answers"][0]["answer_start"] += 1
    (tmp_path / "dev-v1.1.json").write_text(json.dumps(held))

    [problem] = questions.describe(str(tmp_path))["problems"]
    assert problem.endswith("is not where it says.")


@pytest.mark.parametrize(
    ("content", "said"), [("{", "not SQuAD"), ('{"data": 3}', "not SQuAD"), ('{"data": []}', "no q")]
)
def test_a_file_that_is_not_squad_is_named(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "train-v1.1.json").write_text(content)
    sentence = questions.obstacle(str(tmp_path), 1) or ""

    assert said in sentence
    assert "train-v1.1.json" in sentence


# --- click logs -----------------------------------------------------------------------------------------------------

LINE = b"1\t5\t\t-2\t" + b"\t" * 9 + b"7\t" + b"\t".join([b"0000000a", b""] * 13)


def test_a_line_is_cut_into_label_numbers_and_categories(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(LINE + b"\n" + LINE.replace(b"1", b"0", 1))
    (numbers, categories), label = criteo.Dataset(str(tmp_path), rows=[6, 4] * 13)[0]

    assert label == 1
    assert numbers.tolist() == pytest.approx([math.log(6)] + [0.0] * 11 + [math.log(8)])
    assert categories.tolist() == [4, 3] * 13
    assert criteo.Dataset(str(tmp_path))[1][1] == 0
    assert criteo.recognise(str(tmp_path))
    assert not wikipedia.recognise(str(tmp_path))


def test_the_log_has_the_real_ones_shape(log: Path) -> None:
    rows = [line.split("\t") for line in (log / "train_00000.txt").read_text().splitlines()]
    said = criteo.describe(str(log))
    third = [row[14 + 2] for row in rows]

    assert {len(row) for row in rows} == {40}
    assert said["problems"] == []
    assert (said["items"], criteo.obstacle(str(log), 3000)) == (3000, None)
    assert 0.22 < said["clicked"] / 3000 < 0.29
    assert len({row[14 + 8] for row in rows}) == 2  # a category of three values; the third is rare
    assert len(set(third)) > 1500
    assert 200 < said["bytes"] / 3000 < 280


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (LINE + b"\t1", "has 41 fields instead of 40"),
        (LINE.replace(b"0a", b"zz"), "a field is no number"),
        (b"2" + LINE[1:], "the label is 2"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    (tmp_path / "train.txt").write_bytes(line + b"\n")

    assert said in (criteo.obstacle(str(tmp_path), 1) or "")
    assert criteo.describe(str(tmp_path))["problems"] == [f"{tmp_path}/train.txt:1: this is not a line of the log."]
    with pytest.raises(ValueError, match=r"train\.txt"):
        criteo.Dataset(str(tmp_path))[0]


@settings(max_examples=60)
@given(
    contents=st.lists(
        st.lists(st.integers(0, 90_000).map(lambda size: b"x" * size), min_size=1, max_size=6), min_size=1, max_size=3
    ),
    ended=st.booleans(),
)
def test_any_line_can_be_read_by_its_number(
    tmp_path_factory: pytest.TempPathFactory, contents: list[list[bytes]], ended: bool
) -> None:
    """Lines longer than a block, empty ones, and a last one without its end."""
    folder, paths, wanted = tmp_path_factory.mktemp("lines"), [], []
    for number, found in enumerate(contents):
        numbered = [b"%d/%d:" % (number, place) + line for place, line in enumerate(found)]
        paths.append(str(folder / str(number)))
        Path(paths[-1]).write_bytes(b"\n".join(numbered) + (b"\n" if ended else b""))
        wanted += numbered
    read: Any = Lines(paths)

    assert [read[index] for index in range(len(read))] == wanted
    assert sum(count_lines(path, 1 << 40) for path in paths) == len(wanted)
    with pytest.raises(IndexError):
        read[len(read)]
