"""Speech recognition: a WAV file becomes mel frames; RNN-T with greedy decoding; the text."""

TITLE = "speech recognition"
MODEL = "rnnt"
DATA = "speech"
ITEMS = 1200

REDUCED = 2  # frames that the encoder makes one of
LETTERS = " abcdefghijklmnopqrstuvwxyz'"


class Task(object):
    """Clips on disk and a network that writes down what it hears."""

    def __init__(self, clips, hear, transducer, encode):
        self._clips, self._hear, self._transducer, self._encode = clips, hear, transducer, encode
        self.items = len(clips)

    def pre(self, items):
        heard = [self._hear(self._clips[item][0]) for item in items]
        return padded(heard), [None] * len(items)

    def infer(self, features, lengths):
        import torch

        from tare_inside.formats import speech as transducer_decoding

        encoded = self._encode(features)
        lengths = torch.div(lengths + REDUCED - 1, REDUCED, rounding_mode="floor")
        device = self._transducer.embedding.weight.device
        return transducer_decoding.greedy(self._transducer, encoded.to(device), lengths.to(device))

    def post(self, outputs, known):
        return ["".join(LETTERS[letter] for letter in letters).strip() for letters in outputs]

    def joined(self, parts):
        """Clips that were made ready one by one, as a batch."""
        frames = [tensors[0][0, : int(tensors[1][0])] for tensors, _ in parts]
        return padded(frames), [None] * len(parts)


def padded(clips):
    """(frames of all clips with silence after the shorter ones, how many of them are sound); an even number of them."""
    import torch

    lengths = torch.tensor([len(frames) for frames in clips])
    frames = torch.nn.utils.rnn.pad_sequence(clips, batch_first=True)
    # A network that was exported cannot decide whether to fill up: so here, where it would do it itself.
    return torch.nn.functional.pad(frames, (0, 0, 0, -frames.shape[1] % REDUCED)), lengths


def prepare(folder, options):
    """The task, and where its tensors are wanted."""
    import torch

    from tare_inside.data import speech
    from tare_inside.formats import speech as transducer_decoding
    from tare_inside.formats.speech import HOP, RATE_HZ, SPLICED, LogMel
    from tare_inside.programs import tasks
    from tare_inside.programs import tasks as weights

    clips, hear = speech.Dataset(folder), LogMel()
    features, _ = padded([hear(clips[0][0])])
    transducer = weights.seeded(MODEL, options["seed"], (), options["scale"])
    with torch.no_grad():
        encoded = transducer.encode(features)
    transducer_decoding.settle(transducer, encoded, REDUCED * SPLICED * HOP / float(RATE_HZ))
    example = (features.expand(options["batch"], -1, -1).contiguous(),)
    encoder = transducer_decoding.Encoder(transducer).eval()
    encode, tensors_on = tasks.open_backend(encoder, example, dict(options, any_batch=True, free=(0, 1)))
    return Task(clips, hear, transducer, encode), tensors_on
