"""Question answering: question and text are cut into WordPiece tokens; BERT-large; the answer as words of the text."""

TITLE = "question answering"
MODEL = "bert_large"
DATA = "questions"
ITEMS = 10570


class Task(object):
    """Questions on disk and a network that points at the answer."""

    def __init__(self, questions, tokeniser, length, infer):
        self._questions, self._tokeniser, self._length = questions, tokeniser, length
        self.infer = infer
        self.items = len(questions)

    def pre(self, items):
        from tare_inside.formats import tokens

        rows, known = [], []
        for item in items:
            requested = self._questions[item]
            own = tokens.windows(self._tokeniser, requested["question"], requested["context"], self._length)
            rows += own
            known.append((requested["context"], own))
        return tokens.padded(rows, self._length, self._tokeniser.number("[PAD]")), known

    def post(self, outputs, known):
        from tare_inside.formats import tokens

        starts, ends = (scores.float().cpu() for scores in outputs)
        answers, place = [], 0
        for text, rows in known:
            after = place + len(rows)
            answers.append(tokens.answer(text, rows, starts[place:after], ends[place:after]))
            place = after
        return answers


def prepare(folder, options):
    """The task, and where its tensors are wanted."""
    from tare_inside.data import questions
    from tare_inside.models import bert_large
    from tare_inside.programs import tasks
    from tare_inside.programs import tasks as weights

    requested, length = questions.Dataset(folder), options.get("length") or bert_large.INPUT[0]
    tokeniser = requested.tokeniser(bert_large.VOCABULARY)
    network = weights.seeded(MODEL, options["seed"], (), options["scale"])
    task = Task(requested, tokeniser, length, None)
    example, _ = task.pre(range(min(options["batch"], len(requested))))
    # A long text takes several rows, so that batches differ in size.
    task.infer, tensors_on = tasks.open_backend(network, example, dict(options, any_batch=True))
    return task, tensors_on
