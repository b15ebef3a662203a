"""The applications, a class each: from files on disk to answers, with everything in between.

Each has TITLE, MODEL, DATA, ITEMS (how many the paper's load has), LINES_AN_ITEM where an item is several of the data
set's, and `prepare(folder, options)`. That gives the task, one of its kind, and the device on which its tensors are
wanted; a task has `items`, `pre(items)` -> (tensors, what `post` will want to know, one entry an item),
`infer(*tensors)`, and `post(outputs, known)` -> one answer an item.
"""

NAMES = ("image", "question", "recommendation", "speech")
"""In a study; each is the class of that name (see named.py)."""


class Image(object):
    """A JPEG file is decoded, resized, cropped, normalised; ResNet-50; the five likeliest classes."""

    TITLE = "image classification"
    MODEL = "resnet50"
    DATA = "imagenet"
    ITEMS = 1000
    LIKELIEST = 5

    def __init__(self, pictures, infer):
        self._pictures = pictures
        self.infer = infer
        self.items = len(pictures)

    @classmethod
    def prepare(cls, folder, options):
        from tare_inside.workloads.data import imagenet
        from tare_inside.workloads.models import ResNet50
        from tare_inside.workloads.programs import tasks

        side = options.get("pixels") or ResNet50.INPUT[-1]
        pictures = imagenet.Dataset(folder, pixels=side)
        example = (tasks.noise((max(tasks.SETTLING, options["batch"]), 3, side, side), tasks.DATA_SEED),)
        network = tasks.seeded(cls.MODEL, options["seed"], (example[0][: tasks.SETTLING],), options["scale"])
        infer, tensors_on = tasks.open_backend(network, (example[0][: options["batch"]],), options)
        return cls(pictures, infer), tensors_on

    def pre(self, items):
        import torch

        return (torch.stack([self._pictures[item][0] for item in items]),), [None] * len(items)

    def post(self, outputs, known):
        """The likeliest classes of each picture, the likeliest first."""
        shares = outputs.float().cpu().softmax(1)
        return shares.topk(min(self.LIKELIEST, shares.shape[1])).indices.tolist()


class Question(object):
    """Question and text are cut into WordPiece tokens; BERT-large; the answer as words of the text."""

    TITLE = "question answering"
    MODEL = "bert_large"
    DATA = "questions"
    ITEMS = 10570

    def __init__(self, questions, tokeniser, length):
        self._questions, self._tokeniser, self._length = questions, tokeniser, length
        self.infer = None
        self.items = len(questions)

    @classmethod
    def prepare(cls, folder, options):
        from tare_inside.workloads.data import questions
        from tare_inside.workloads.models import BertLarge
        from tare_inside.workloads.programs import tasks

        requested, length = questions.Dataset(folder), options.get("length") or BertLarge.INPUT[0]
        tokeniser = requested.tokeniser(BertLarge.VOCABULARY)
        network = tasks.seeded(cls.MODEL, options["seed"], (), options["scale"])
        task = cls(requested, tokeniser, length)
        example, _ = task.pre(range(min(options["batch"], len(requested))))
        # A long text takes several rows, so that batches differ in size.
        task.infer, tensors_on = tasks.open_backend(network, example, dict(options, any_batch=True))
        return task, tensors_on

    def pre(self, items):
        from tare_inside.workloads.formats import tokens

        rows, known = [], []
        for item in items:
            requested = self._questions[item]
            own = tokens.windows(self._tokeniser, requested["question"], requested["context"], self._length)
            rows += own
            known.append((requested["context"], own))
        return tokens.padded(rows, self._length, self._tokeniser.number("[PAD]")), known

    def post(self, outputs, known):
        from tare_inside.workloads.formats import tokens

        starts, ends = (scores.float().cpu() for scores in outputs)
        answers, place = [], 0
        for text, rows in known:
            after = place + len(rows)
            answers.append(tokens.answer(text, rows, starts[place:after], ends[place:after]))
            place = after
        return answers


class Recommendation(object):
    """Lines of a click log become numbers and places in tables; DLRM; advertisements, the likeliest first.

    An item is one person to whom one of so many advertisements is to be shown, each a line of the log.
    """

    TITLE = "recommendation"
    MODEL = "dlrm"
    DATA = "criteo"
    ITEMS = 1000
    LINES_AN_ITEM = 100  # MLPerf's samples have 100 to 700 lines

    def __init__(self, log):
        self._log = log
        self.infer = None
        self.items = len(log) // self.LINES_AN_ITEM

    @classmethod
    def prepare(cls, folder, options):
        from tare_inside.workloads.data import criteo
        from tare_inside.workloads.models import Dlrm
        from tare_inside.workloads.programs import tasks

        task = cls(criteo.Dataset(folder, rows=Dlrm.table_rows(options["scale"])))
        network = tasks.seeded(cls.MODEL, options["seed"], (), options["scale"])
        example, _ = task.pre(range(options["batch"]))
        task.infer, tensors_on = tasks.open_backend(network, example, options)
        return task, tensors_on

    def pre(self, items):
        import torch

        many = self.LINES_AN_ITEM
        lines = [self._log[item * many + line][0] for item in items for line in range(many)]
        numbers, categories = zip(*lines)
        return (torch.stack(numbers), torch.stack(categories)), [None] * len(items)

    def post(self, outputs, known):
        """For each person the candidates, the likeliest first."""
        scores = outputs.float().cpu().reshape(len(known), self.LINES_AN_ITEM)
        return scores.argsort(1, descending=True).tolist()


class Speech(object):
    """A WAV file becomes mel frames; RNN-T with greedy decoding; the text."""

    TITLE = "speech recognition"
    MODEL = "rnnt"
    DATA = "speech"
    ITEMS = 1200
    REDUCED = 2  # frames that the encoder makes one of
    LETTERS = " abcdefghijklmnopqrstuvwxyz'"

    def __init__(self, clips, hear, transducer, encode):
        self._clips, self._hear, self._transducer, self._encode = clips, hear, transducer, encode
        self.items = len(clips)

    @classmethod
    def prepare(cls, folder, options):
        import torch

        from tare_inside.workloads.data import speech as data
        from tare_inside.workloads.formats import speech
        from tare_inside.workloads.programs import tasks

        clips, hear = data.Dataset(folder), speech.LogMel()
        features, _ = cls.padded([hear(clips[0][0])])
        transducer = tasks.seeded(cls.MODEL, options["seed"], (), options["scale"])
        with torch.no_grad():
            encoded = transducer.encode(features)
        frame_s = cls.REDUCED * speech.SPLICED * speech.HOP / float(speech.RATE_HZ)
        speech.settle(transducer, encoded, frame_s)
        example = (features.expand(options["batch"], -1, -1).contiguous(),)
        encoder = speech.Encoder(transducer).eval()
        encode, tensors_on = tasks.open_backend(encoder, example, dict(options, any_batch=True, free=(0, 1)))
        return cls(clips, hear, transducer, encode), tensors_on

    def pre(self, items):
        heard = [self._hear(self._clips[item][0]) for item in items]
        return self.padded(heard), [None] * len(items)

    def infer(self, features, lengths):
        import torch

        from tare_inside.workloads.formats import speech

        encoded = self._encode(features)
        lengths = torch.div(lengths + self.REDUCED - 1, self.REDUCED, rounding_mode="floor")
        device = self._transducer.embedding.weight.device
        return speech.greedy(self._transducer, encoded.to(device), lengths.to(device))

    def post(self, outputs, known):
        return ["".join(self.LETTERS[letter] for letter in letters).strip() for letters in outputs]

    def joined(self, parts):
        """Clips that were made ready one by one, as a batch."""
        frames = [tensors[0][0, : int(tensors[1][0])] for tensors, _ in parts]
        return self.padded(frames), [None] * len(parts)

    @classmethod
    def padded(cls, clips):
        """(frames of all clips with silence after the shorter ones, how many are sound); an even number of them."""
        import torch

        lengths = torch.tensor([len(frames) for frames in clips])
        frames = torch.nn.utils.rnn.pad_sequence(clips, batch_first=True)
        # A network that was exported cannot decide whether to fill up: so here, where it would do it itself.
        return torch.nn.functional.pad(frames, (0, 0, 0, -frames.shape[1] % cls.REDUCED)), lengths
