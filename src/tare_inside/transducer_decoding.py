"""From what the encoder of an RNN-T heard to letters: greedily, frame by frame, the likeliest letter or none."""

import torch

MOST_LETTERS = 3  # in one frame of 60 ms; a trained network hardly ever says more (MLPerf's guard is 30)
LETTERS_A_SECOND = 14.0  # of spoken English
_SAID_BEFORE = 0.1  # how much the letters before move a score, against how much the frames do
_SPELT = 8  # letters, after which the prediction network has left its start behind


class Encoder(torch.nn.Module):
    """The encoder alone, as a network that a back end can take."""

    def __init__(self, transducer):
        super().__init__()
        self.transducer = transducer

    def forward(self, features):
        return self.transducer.encode(features)


def greedy(transducer, encoded, lengths):
    """The letters of each clip: `encoded` is (N, T, E), `lengths` how many frames of it are sound."""
    count, blank = encoded.shape[0], transducer.blank
    texts = [[] for _ in range(count)]
    said, state = transducer.start(count)
    for frame in range(int(lengths.max())):
        listening = lengths > frame
        for _ in range(MOST_LETTERS):
            best = transducer.join(encoded[:, frame : frame + 1], said)[:, 0, 0].argmax(1)
            listening = listening & (best != blank)
            if not bool(listening.any()):
                break
            for place in listening.nonzero().flatten().tolist():
                texts[place].append(int(best[place]))
            said, state = _advanced(transducer, best, listening, said, state)
    return texts


def _advanced(transducer, letters, moving, said, state):
    """The prediction network one letter on, for those texts that got one."""
    # A blank is no input: where it stands, the result is thrown away anyway.
    ahead, after = transducer.predict(letters.masked_fill(~moving, 0).unsqueeze(1), state)
    column = moving.view(-1, 1, 1)
    kept = tuple(torch.where(column.transpose(0, 1), new, old) for new, old in zip(after, state))
    return torch.where(column, ahead, said), kept


def settle(transducer, encoded, seconds_a_frame):
    """Make random weights speak: about as many letters a second as people do, and not the same one all the time.

    As they come, random weights say nothing at all or one letter as often as they may, and how long decoding takes
    depends on it: this is the one place where weights change the cost. So what is said depends on the frame more than
    on the letters before, each class's score gets mean 0 and spread 1 over the frames of a clip, and "no letter" is
    made as likely as it should be.
    """
    first, last, blank = transducer.joint[0], transducer.joint[-1], transducer.blank
    with torch.no_grad():
        said = _after_letters(transducer)
        by_frame, by_letter = first.weight[:, : encoded.shape[2]], first.weight[:, encoded.shape[2] :]
        heard, spelt = encoded[0] @ by_frame.t(), said @ by_letter.t()
        by_letter *= _SAID_BEFORE * heard.std(0).mean() / (spelt - spelt.mean(0)).std().clamp(min=1e-6)
        scores = transducer.join(encoded[:1], said[:1].unsqueeze(0))[0, :, 0]
        spread, mean = scores.std(0).clamp(min=1e-6), scores.mean(0)
        last.bias.copy_((last.bias - mean) / spread)
        last.weight.div_(spread.unsqueeze(1))
        scores = (scores - mean) / spread
        ahead = (scores[:, :blank].max(1).values - scores[:, blank]).sort().values
        spoken = LETTERS_A_SECOND * seconds_a_frame / MOST_LETTERS  # of all frames
        last.bias[blank] += ahead[int((1 - spoken) * (len(ahead) - 1))]


def _after_letters(transducer):
    """What the prediction network says after each letter, repeated: (letters, P)."""
    letters = torch.arange(transducer.blank).unsqueeze(1).expand(-1, _SPELT)
    return transducer.predict(letters)[0][:, -1]
