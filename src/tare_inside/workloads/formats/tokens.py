"""WordPiece: text to the numbers of a vocabulary, as BERT does it.

Text is lower-cased, accents are stripped, punctuation stands alone; a word that is not in the vocabulary is cut into
the longest pieces that are, from the left, and pieces within a word begin with `##`. The vocabulary is a file with one
piece a line; any BERT's `vocab.txt` will do.

Question and text to rows of tokens for BERT, and its scores back to words of the text.

A text that is too long for one row is cut into windows that overlap, as in SQuAD's own programs; the best span of all
windows is the answer.
"""

import collections
import os
import re
import unicodedata
from collections import namedtuple

FILE = "vocab.txt"
SIZE = 30522  # pieces, as BERT has
PAD, UNKNOWN, CLASSIFY, SEPARATE, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"

_SPECIAL = [PAD, UNKNOWN, CLASSIFY, SEPARATE, MASK]
_LONGEST_WORD = 100  # letters; longer ones are unknown
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9\x00-\x1f\x7f]")
_LEARN_BYTES = 16 << 20


class WordPiece(object):
    """A vocabulary, and how to cut text by it; `size` takes only its first pieces."""

    def __init__(self, pieces, size=None):
        self._numbers = {piece: number for number, piece in reversed(list(enumerate(pieces[:size])))}
        if UNKNOWN not in self._numbers:
            raise ValueError("the vocabulary has no {} among its first {} pieces.".format(UNKNOWN, len(pieces[:size])))
        self.size = len(pieces[:size])
        self.unknown = self._numbers[UNKNOWN]

    def number(self, piece):
        """The number of a piece such as [CLS]; of [UNK] where there is none."""
        return self._numbers.get(piece, self.unknown)

    def numbers(self, text):
        """The numbers of a text."""
        found = []
        for word, _, _ in split(text):
            found += self._cut(word)
        return found

    def spans(self, text):
        """(number, begin, end) for each piece: where in the text the word lies that it belongs to."""
        return [(number, begin, end) for word, begin, end in split(text) for number in self._cut(word)]

    def _cut(self, word):
        known = self._numbers.get(word)
        if known is not None:
            return (known,)
        if len(word) > _LONGEST_WORD:
            return (self.unknown,)
        numbers, begin, length = [], 0, len(word)
        while begin < length:
            end = length
            while end > begin:
                piece = word[begin:end] if begin == 0 else "##" + word[begin:end]
                known = self._numbers.get(piece)
                if known is not None:
                    break
                end -= 1
            else:
                return (self.unknown,)
            numbers.append(known)
            begin = end
        return numbers


def split(text):
    """(word, begin, end) for each word or sign of a text, lower-cased and without accents."""
    if text.isascii() if hasattr(text, "isascii") else all(ord(letter) < 128 for letter in text):
        return [(found.group().lower(), found.start(), found.end()) for found in _ASCII_WORD.finditer(text)]
    words, begin = [], None
    for place, letter in enumerate(text + " "):
        alone = _stands_alone(letter)
        if (alone or letter.isspace() or unicodedata.category(letter)[0] == "C") and begin is not None:
            words.append((_plain(text[begin:place]), begin, place))
            begin = None
        if alone:
            words.append((letter, place, place + 1))
        elif begin is None and not letter.isspace() and unicodedata.category(letter)[0] != "C":
            begin = place
    return [found for found in words if found[0]]


def _plain(word):
    return "".join(
        letter for letter in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(letter) != "Mn"
    )


def _stands_alone(letter):
    """Punctuation and signs of ASCII, punctuation of Unicode, and Chinese characters."""
    code = ord(letter)
    if code < 128:
        return not letter.isalnum() and not letter.isspace() and code > 32 and code != 127
    return (
        unicodedata.category(letter)[0] == "P"
        or 0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= 0x2FA1F
    )


def vocabulary(words, size=SIZE):
    """Pieces for these words, the commonest first: signs and letters, then words, then what is left unused."""
    letters = [chr(code) for code in range(33, 127) if not "A" <= chr(code) <= "Z"]
    pieces = _SPECIAL + letters + ["##" + letter for letter in letters if letter.isalnum()]
    known = set(pieces)
    pieces += [word for word in words if word not in known][: max(0, size - len(pieces))]
    return pieces + ["[unused{}]".format(number) for number in range(size - len(pieces))]


def learned(text, size=SIZE):
    """A vocabulary made from a text."""
    counts = collections.Counter(word for word, _, _ in split(text))
    return vocabulary(sorted(counts, key=lambda word: (-counts[word], word)), size)


def as_file(pieces):
    """The content of a vocabulary's file."""
    return ("\n".join(pieces) + "\n").encode("utf-8")


def opened(folder, text_files=(), size=None):
    """The WordPiece of a folder: by its vocab.txt, else by a vocabulary made from the beginning of its text."""
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return WordPiece(learned(_beginning(text_files)), size)
    with open(path, encoding="utf-8") as file:
        pieces = file.read().split("\n")
    try:
        return WordPiece(pieces[:-1] if pieces[-1] == "" else pieces, size)
    except ValueError as problem:
        raise ValueError("{}: {}".format(path, problem))


def _beginning(paths):
    parts, left = [], _LEARN_BYTES
    for path in paths:
        with open(path, "rb") as file:
            parts.append(file.read(left))
        left -= len(parts[-1])
        if left <= 0:
            break
    return b"\n".join(parts).decode("utf-8", "replace")


LONGEST_QUESTION, STRIDE = 64, 128  # pieces
BEST, LONGEST_ANSWER = 20, 30  # starts and ends that are looked at, pieces

# A row of tokens: the numbers, which part each is in, and for each piece of the text where its word lies there.
Window = namedtuple("Window", "numbers segments first spans")


def windows(tokeniser, question, text, length):
    """The rows for one question; each is `[CLS] question [SEP] text [SEP]`."""
    requested = tokeniser.numbers(question)[:LONGEST_QUESTION]
    pieces = tokeniser.spans(text)
    room = length - len(requested) - 3
    classify, separate = tokeniser.number("[CLS]"), tokeniser.number("[SEP]")
    rows, begin = [], 0
    while True:
        part = pieces[begin : begin + room]
        head = [classify] + requested + [separate]
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
