"""Wikipedia as plain text: one or more files, as WikiText-103 (`wiki.train.tokens`) or as `.txt`; vocab.txt beside it.

Items are windows of so many tokens and, as labels, the tokens that follow each of them. A window is read, decoded and
cut into WordPieces at each read. Windows begin at even distances in the text, as far apart as they are long on average.

The count is that of articles: WikiText-103 has 28,475, 103 million words, 540 MB.
"""

import os

from tare_inside.workloads.formats import make as making
from tare_inside.workloads.formats import synthetic
from tare_inside.workloads.formats import tokens as words

TITLE = "Wikipedia"
KIND = "text"
FORMAT = "plain text (WikiText: wiki.*.tokens, or *.txt)"
ITEMS = 28475
BYTES = 540000000

_ENDINGS = (".tokens", ".txt")
_UNIT = 32  # articles
_MEDIAN_SENTENCES, _SPREAD = 120, 0.6  # of an article, and of its logarithm
_LONGEST_SENTENCES = 900
_SAMPLE_BYTES = 1 << 16


def units(count):
    """In how many units it is made."""
    return 1 + (count + _UNIT - 1) // _UNIT


def maker(count, seed):
    """From a unit to its files: the vocabulary first, then files of some articles each."""
    writer = synthetic.Prose(seed)

    def files_of(unit):
        if unit == 0:
            return [(words.FILE, words.as_file(words.vocabulary(writer.words)))]
        indices = range((unit - 1) * _UNIT, min(count, unit * _UNIT))
        text = "".join(_article(writer, making.chance("wikipedia", seed, index)) for index in indices)
        return [("wiki.train.{:05d}.tokens".format(unit - 1), text.encode())]

    return files_of


def _article(writer, luck):
    left = max(10, min(_LONGEST_SENTENCES, int(luck.lognormvariate(0, _SPREAD) * _MEDIAN_SENTENCES)))
    lines = [" ", " = {} = ".format(_title(writer, luck)), " "]
    while left > 0:
        sentences = min(left, luck.randrange(3, 9))
        lines.append(" " + " ".join(" ".join(writer.sentence(luck)) for _ in range(sentences)) + " ")
        left -= sentences
        if luck.random() < 0.25:
            lines += [" ", " = = {} = = ".format(_title(writer, luck)), " "]
    return "\n".join(lines) + "\n"


def _title(writer, luck):
    return " ".join(writer.phrase(luck, luck.randrange(1, 4))).title()


def obstacle(folder, items):
    """Why this folder cannot be trained on, as a sentence; None if it can."""
    try:
        paths = _texts(folder)
        room = sum(os.path.getsize(path) for path in paths)
    except (OSError, ValueError) as problem:
        return str(problem)
    if room < 2 * items:
        return "{}: an epoch needs {} windows of text and there are {} bytes in all.".format(folder, items, room)
    return None


def recognise(folder):
    """Whether the folder looks like this data set."""
    try:
        with open(_texts(folder)[0], "rb") as file:
            return b"\t" not in file.readline()  # a table is no prose
    except (OSError, ValueError):
        return False


def describe(folder):
    """What is there, for `tare device data check`."""
    problems, size, articles = [], 0, 0
    for path in _texts(folder):
        try:
            with open(path, "rb") as file:
                for line in file:
                    size += len(line)
                    line.decode("utf-8")
                    articles += line.startswith(b" = ") and not line.startswith(b" = = ")
        except (OSError, UnicodeDecodeError) as problem:
            problems.append("{}: {}".format(path, getattr(problem, "strerror", None) or "it is not UTF-8 text."))
    reported = {"bytes": size, "problems": problems, "vocabulary": os.path.exists(os.path.join(folder, words.FILE))}
    return dict(reported, items=articles) if articles else reported


class Dataset(object):
    """Items (tokens, the tokens that follow each): windows of the text, read and tokenised at each read."""

    def __init__(self, folder, length=128, vocabulary=None):
        import torch

        self._view = (folder, length, vocabulary)
        self._tensor, self._length = torch.tensor, length
        paths = _texts(folder)
        self._cut = words.opened(folder, paths, vocabulary)
        self.classes = vocabulary or self._cut.size
        self._paths = paths
        self._files = [os.open(path, os.O_RDONLY) for path in paths]
        self._sizes = [os.path.getsize(path) for path in paths]
        self._stride = max(1, int(length * self._bytes_a_token()))
        self._windows = [max(1, size // self._stride) for size in self._sizes]

    def __len__(self):
        return sum(self._windows)

    def __getitem__(self, index):
        number, window = 0, index
        while window >= self._windows[number]:
            window -= self._windows[number]
            number += 1
        tokens = self._read(number, window * self._stride)
        return self._tensor(tokens[:-1]), self._tensor(tokens[1:])

    def _read(self, number, begin):
        """One token more than a window has, from the first word that begins at or after `begin`."""
        wanted, span = self._length + 1, int(self._stride * 1.5) + 64
        while True:
            first = max(0, min(begin, self._sizes[number] - span))
            content = os.pread(self._files[number], span, first)
            tokens = self._cut.numbers(_whole_words(content, first > 0).decode("utf-8", "ignore"))
            if len(tokens) >= wanted:
                return tokens[:wanted]
            if span >= self._sizes[number]:
                return tokens + [self._cut.number(words.PAD)] * (wanted - len(tokens))
            span *= 2

    def _bytes_a_token(self):
        content = os.pread(self._files[0], _SAMPLE_BYTES, 0)
        tokens = self._cut.numbers(content.decode("utf-8", "ignore"))
        if not tokens:
            raise ValueError("{}: there are no words in it.".format(self._paths[0]))
        return len(content) / float(len(tokens))

    def __reduce__(self):
        return Dataset, self._view  # spawned loader workers open the files again

    def __del__(self):
        for descriptor in getattr(self, "_files", ()):
            os.close(descriptor)


def _whole_words(content, cut_before):
    """The content without the word that it may begin in the middle of."""
    if not cut_before:
        return content
    for place, byte in enumerate(content):
        if byte in b" \n\t\r":
            return content[place:]
    return content


def _texts(folder):
    """The files of the text, sorted; the vocabulary is none of them."""
    if not os.path.isdir(folder):
        raise FileNotFoundError("{}: no such folder.".format(folder))
    names = [name for name in sorted(os.listdir(folder)) if name.endswith(_ENDINGS) and name != words.FILE]
    train = [name for name in names if name.startswith("wiki.train.")]
    paths = [os.path.join(folder, name) for name in train or names]
    if not any(os.path.getsize(path) for path in paths):
        raise ValueError("{}: no text in it: no {} file that is not empty.".format(folder, " or ".join(_ENDINGS)))
    return [path for path in paths if os.path.getsize(path)]
