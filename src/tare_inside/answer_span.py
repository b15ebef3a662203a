"""Question and text to rows of tokens for BERT, and its scores back to words of the text.

A text that is too long for one row is cut into windows that overlap, as in SQuAD's own programs; the best span of all
windows is the answer.
"""

from collections import namedtuple

LONGEST_QUESTION, STRIDE = 64, 128  # pieces
BEST, LONGEST_ANSWER = 20, 30  # starts and ends that are looked at, pieces

# A row of tokens: the numbers, which part each is in, and for each piece of the text where its word lies there.
Window = namedtuple("Window", "numbers segments first spans")


def windows(tokeniser, question, text, length):
    """The rows for one question; each is `[CLS] question [SEP] text [SEP]`."""
    asked = tokeniser.numbers(question)[:LONGEST_QUESTION]
    pieces = tokeniser.spans(text)
    room = length - len(asked) - 3
    classify, separate = tokeniser.number("[CLS]"), tokeniser.number("[SEP]")
    rows, begin = [], 0
    while True:
        part = pieces[begin : begin + room]
        head = [classify] + asked + [separate]
        numbers = head + [number for number, _, _ in part] + [separate]
        segments = [0] * len(head) + [1] * (len(part) + 1)
        rows.append(Window(numbers, segments, len(head), [(start, end) for _, start, end in part]))
        if begin + room >= len(pieces):
            return rows
        begin += min(STRIDE, room)


def padded(rows, length, pad):
    """(tokens, segments, mask) of rows, each filled up to `length`."""
    import torch

    tokens = torch.full((len(rows), length), pad, dtype=torch.int64)
    segments = torch.zeros((len(rows), length), dtype=torch.int64)
    mask = torch.zeros((len(rows), length), dtype=torch.bool)
    for place, row in enumerate(rows):
        count = len(row.numbers)
        tokens[place, :count] = torch.tensor(row.numbers)
        segments[place, :count] = torch.tensor(row.segments)
        mask[place, :count] = True
    return tokens, segments, mask


def answer(text, rows, starts, ends):
    """The words of the text from the likeliest start to the likeliest end that fits it; nothing where none does."""
    best_score, best = None, ""
    for row, start_scores, end_scores in zip(rows, starts, ends):
        last = row.first + len(row.spans)
        if last == row.first:
            continue
        found = _best_span(start_scores[row.first : last], end_scores[row.first : last])
        if found is not None and (best_score is None or found[0] > best_score):
            best_score = found[0]
            best = text[row.spans[found[1]][0] : row.spans[found[2]][1]]
    return best


def _best_span(starts, ends):
    """(score, first piece, last piece) of the best pair among the likeliest starts and ends."""
    count = min(BEST, len(starts))
    begins, finishes = starts.topk(count), ends.topk(count)
    pairs = [
        (score + end_score, begin, end)
        for score, begin in zip(begins.values.tolist(), begins.indices.tolist())
        for end_score, end in zip(finishes.values.tolist(), finishes.indices.tolist())
        if begin <= end < begin + LONGEST_ANSWER
    ]
    return max(pairs, key=lambda pair: pair[0]) if pairs else None
