"""The small pieces of the applications: sound to frames, frames to letters, text to rows and back, requests in time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tare_inside.workloads.formats import speech
from tare_inside.workloads.formats import tokens as answer_span
from tare_inside.workloads.formats import tokens as words
from tare_inside.workloads.programs import infer, tasks


def test_a_tone_is_loudest_in_the_channel_of_its_pitch() -> None:
    edges_hz = [speech.hz(speech.mel(8000) / 81 * number) for number in range(82)]
    for tone_hz in (300.0, 1000.0, 4000.0):
        samples = torch.sin(2 * math.pi * tone_hz * torch.arange(16000) / 16000)
        spectrum = torch.stft(samples, 512, 160, 320, torch.hann_window(320), return_complex=True).abs() ** 2
        loudest = int((speech.filters() @ spectrum).mean(1).argmax())

        assert edges_hz[loudest] <= tone_hz <= edges_hz[loudest + 2]


def test_fifteen_seconds_are_some_five_hundred_frames_of_three_times_eighty_channels() -> None:
    frames = speech.LogMel()(torch.randn(15 * 16000))

    assert frames.shape == (501, 240)
    assert torch.isfinite(speech.LogMel()(torch.zeros(16000))).all()
    channels = frames.reshape(-1, 80)[:1501]
    assert float(channels.mean(0).abs().max()) < 1e-3
    assert float((channels.std(0) - 1).abs().max()) < 1e-2


@pytest.mark.parametrize("frequency_hz", [0.0, 440.0, 1000.0, 7999.0])
def test_mel_has_an_inverse(frequency_hz: float) -> None:
    assert speech.hz(speech.mel(frequency_hz)) == pytest.approx(frequency_hz)


def small_transducer() -> tuple[Any, torch.Tensor]:
    transducer = tasks.seeded("rnnt", 3, (), scale=0.05)
    with torch.no_grad():
        encoded = transducer.encode(torch.randn(2, 40, 240, generator=torch.Generator().manual_seed(1)))
        speech.settle(transducer, encoded, 0.06)
    return transducer, encoded


def test_greedy_decoding_of_a_batch_is_that_of_each_clip() -> None:
    transducer, encoded = small_transducer()
    with torch.no_grad():
        together = speech.greedy(transducer, encoded, torch.tensor([20, 11]))
        alone = [one_by_one(transducer, encoded[:1, :20]), one_by_one(transducer, encoded[1:, :11])]

    assert together == alone
    assert 0 < len(together[0]) < 20 * speech.MOST_LETTERS
    assert len(set(together[0])) > 1


def one_by_one(transducer: Any, encoded: torch.Tensor) -> list[int]:
    """Greedy decoding as the papers write it down."""
    letters: list[int] = []
    said, state = transducer.start(1)
    for frame in range(encoded.shape[1]):
        for _ in range(speech.MOST_LETTERS):
            best = int(transducer.join(encoded[:, frame : frame + 1], said).argmax())
            if best == transducer.blank:
                break
            letters.append(best)
            said, state = transducer.predict(torch.tensor([[best]]), state)
    return letters


TEXT = "The quick brown fox jumps over the lazy dog"
TOKENISER = words.WordPiece(words.vocabulary(sorted(set(TEXT.lower().split()))))


def scores(length: int, best: int) -> torch.Tensor:
    given = torch.zeros(1, length)
    given[0, best] = 1.0
    return given


def test_an_answer_is_cut_from_the_text_where_start_and_end_score_highest() -> None:
    (row,) = answer_span.windows(TOKENISER, "who jumps?", TEXT, 32)
    length = len(row.numbers)

    assert (
        answer_span.answer(TEXT, [row], scores(length, row.first + 1), scores(length, row.first + 3))
        == "quick brown fox"
    )


def test_an_end_before_its_start_is_no_answer() -> None:
    (row,) = answer_span.windows(TOKENISER, "who?", TEXT, 32)
    length = len(row.numbers)
    found = answer_span.answer(TEXT, [row], scores(length, row.first + 5), scores(length, row.first + 2))

    assert found in TEXT
    assert found
    assert found != "brown fox jumps over"


def test_scores_on_the_question_do_not_count() -> None:
    (row,) = answer_span.windows(TOKENISER, "who jumps?", TEXT, 32)
    length = len(row.numbers)
    starts = scores(length, 1) * 9 + scores(length, row.first + 7)

    assert answer_span.answer(TEXT, [row], starts, scores(length, row.first + 8)) == "lazy dog"


def test_a_long_text_is_cut_into_windows_that_overlap_and_the_best_one_answers() -> None:
    text = " ".join([TEXT] * 30)
    rows = answer_span.windows(TOKENISER, "who?", text, 160)
    length = 160
    tokens, segments, mask = answer_span.padded(rows, length, TOKENISER.number("[PAD]"))

    assert len(rows) > 1
    assert rows[1].spans[0][0] < rows[0].spans[-1][0]
    assert tokens.shape == segments.shape == mask.shape == (len(rows), 160)
    assert [int(count) for count in mask.sum(1)] == [len(row.numbers) for row in rows]
    starts, ends = torch.zeros(len(rows), length), torch.zeros(len(rows), length)
    starts[1, rows[1].first] = ends[1, rows[1].first + 1] = 5.0
    begin, end = rows[1].spans[0][0], rows[1].spans[1][1]
    assert answer_span.answer(text, rows, starts, ends) == text[begin:end]


def test_an_empty_text_has_an_empty_answer() -> None:
    (row,) = answer_span.windows(TOKENISER, "who?", "", 32)

    assert answer_span.answer("", [row], torch.zeros(1, 32), torch.zeros(1, 32)) == ""


def test_arrivals_come_as_often_as_asked_and_at_random() -> None:
    arrivals = infer.poisson_ns(4000, 50.0, seed=1)
    gaps_s = [(after - before) / 1e9 for before, after in zip([0, *arrivals], arrivals, strict=False)]

    assert sum(gaps_s) / 4000 == pytest.approx(1 / 50, rel=0.1)
    spread_s = math.sqrt(sum((gap - 1 / 50) ** 2 for gap in gaps_s) / 4000)
    assert spread_s == pytest.approx(1 / 50, rel=0.15)  # as large as the mean, unlike a clock's
    assert arrivals == infer.poisson_ns(4000, 50.0, seed=1) != infer.poisson_ns(4000, 50.0, seed=2)


def test_requests_go_round_where_there_are_more_of_them_than_items() -> None:
    assert infer.batches(3, 2, 5) == [range(0, 2), range(2, 4), range(0, 2)]
    with pytest.raises(ValueError, match="a batch of 6 needs 6 items and there are 5: lower `batch`"):
        infer.batches(1, 6, 5)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_first_problem_ends_all_requests(concurrency: int) -> None:
    handled: list[int] = []

    def handle(step: int, items: range, since_ns: int) -> None:
        handled.append(step)
        if step == 2:
            raise ValueError("clip.wav: this is not a WAV file")

    with pytest.raises(ValueError, match=r"clip\.wav"):
        infer.serve(handle, infer.batches(100, 1, 4), concurrency)
    assert len(handled) < 100
