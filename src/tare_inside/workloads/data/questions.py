"""Questions with a text that holds the answer: SQuAD v1.1's JSON, and vocab.txt beside it.

    dev-v1.1.json    {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers"}]}]}]}

The real development set has 10,570 questions on 2,067 paragraphs of 48 articles; its file is 4.9 MB.
"""

import json
import os

from tare_inside.workloads.formats import make as making
from tare_inside.workloads.formats import pictures, synthetic, tokens

TITLE = "SQuAD v1.1"
KIND = "questions"
FORMAT = "SQuAD v1.1 JSON"
ITEMS = 10570
BYTES = 4854279

FILES = ("dev-v1.1.json", "train-v1.1.json")

_A_PARAGRAPH, _AN_ARTICLE = 5, 220  # questions
_STARTS = ("What", "Who", "When", "Where", "Which", "How many", "Why")


def units(count):
    """In how many units it is made."""
    return 1


def maker(count, seed):
    """From the one unit there is to its two files."""

    def files_of(unit):
        writer = synthetic.Prose(seed)
        articles = [
            _article(writer, seed, range(first, min(count, first + _AN_ARTICLE)))
            for first in range(0, count, _AN_ARTICLE)
        ]
        yield FILES[0], json.dumps({"data": articles, "version": "1.1"}).encode()
        yield tokens.FILE, tokens.as_file(tokens.vocabulary(writer.words))

    return files_of


def _article(writer, seed, indices):
    luck = making.chance("questions title", seed, indices[0])
    paragraphs = []
    for first in range(indices[0], indices[-1] + 1, _A_PARAGRAPH):
        here = making.chance("questions", seed, first)
        sentences = [writer.sentence(here) for _ in range(here.randrange(4, 9))]
        words = [word for sentence in sentences for word in sentence]
        context = " ".join(words).replace(" ,", ",").replace(" .", ".")
        requested = range(first, min(indices[-1] + 1, first + _A_PARAGRAPH))
        paragraphs.append({"context": context, "qas": [_question(writer, here, context, index) for index in requested]})
    return {"title": "_".join(writer.phrase(luck, 2)).title(), "paragraphs": paragraphs}


def _question(writer, luck, context, index):
    """Asks for a few words of the context, with the words around them; three people answered, not quite alike."""
    pieces = context.split(" ")
    begin = luck.randrange(len(pieces) - 3)
    around = [word.strip(",.").lower() for word in pieces[max(0, begin - 4) : begin]]
    requested = [luck.choice(_STARTS)] + around + [word.lower() for word in writer.phrase(luck, luck.randrange(3, 8))]
    start = len(" ".join(pieces[:begin])) + (1 if begin else 0)
    answers = []
    for length in (luck.randrange(1, 4), luck.randrange(1, 4), luck.randrange(1, 3)):
        text = " ".join(pieces[begin : begin + length]).rstrip(",.")
        answers.append({"answer_start": start, "text": text})
    return {"answers": answers, "question": " ".join(requested) + "?", "id": "{:024x}".format(index + (1 << 90))}


def obstacle(folder, items):
    """Why this folder cannot be used, as a sentence; None if it can."""
    try:
        count = len(_asked(folder))
    except (OSError, ValueError) as problem:
        return str(problem)
    if count < items:
        return "{}: {} questions are needed and there are {}.".format(folder, items, count)
    return None


def recognise(folder):
    """Whether the folder looks like this data set."""
    return _path(folder) is not None


def describe(folder):
    """What is there, for `tare device data check`."""
    path = _path(folder)
    reported = {"bytes": os.path.getsize(path), "problems": []}
    try:
        requested = _asked(folder)
    except ValueError as problem:
        return dict(reported, problems=[str(problem)])
    for item in requested:
        for answer in item["answers"]:
            begin = answer["answer_start"]
            if item["context"][begin : begin + len(answer["text"])] != answer["text"]:
                reported["problems"].append("{}: the answer to {} is not where it says.".format(path, item["id"]))
    return dict(reported, items=len(requested), vocabulary=os.path.exists(os.path.join(folder, tokens.FILE)))


class Dataset(object):
    """Items {"id", "question", "context", "answers"}: text as it lies in the file, to be tokenised by whoever asks."""

    def __init__(self, folder):
        self._folder = folder
        self._items = _asked(folder)

    def __len__(self):
        return len(self._items)

    def __getitem__(self, index):
        return self._items[index]

    def tokeniser(self, size=None):
        """WordPiece by the folder's vocab.txt, else by a vocabulary made from the texts."""
        return tokens.opened(self._folder, [_path(self._folder)], size)

    def __reduce__(self):
        return Dataset, (self._folder,)


def _path(folder):
    for name in FILES:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    return None


def _asked(folder):
    """Every question, with the text that holds its answer."""
    path = _path(folder)
    if path is None:
        raise FileNotFoundError("{}: there is neither {} in it.".format(folder, " nor ".join(FILES)))
    try:
        articles = json.loads(pictures.read(path).decode("utf-8"))["data"]
        found = [
            {
                "id": requested["id"],
                "question": requested["question"],
                "context": part["context"],
                "answers": requested["answers"],
            }
            for article in articles
            for part in article["paragraphs"]
            for requested in part["qas"]
        ]
    except (ValueError, KeyError, TypeError) as problem:
        raise ValueError("{}: this is not SQuAD v1.1: {!r}".format(path, problem))
    if not found:
        raise ValueError("{}: there are no questions in it.".format(path))
    return found
