"""From sound to what a speech network hears: the logarithm of the power in mel channels, a frame every 10 ms.

The recipe is that of MLPerf's RNN-T: 16 kHz, pre-emphasis, Hann windows of 20 ms, 80 mel channels, each normalised
over the clip, and three frames side by side.
"""

import math

import torch

RATE_HZ = 16000
CHANNELS, SPLICED = 80, 3
WINDOW, HOP, TRANSFORM = 320, 160, 512  # samples
_EMPHASIS = 0.97
_LEAST = 2.0**-24  # the power of silence, so that its logarithm exists


def mel(hz):
    """The mel scale of Slaney: straight up to 1 kHz, logarithmic above."""
    return hz * 3 / 200.0 if hz < 1000 else 15 + 27 * math.log(hz / 1000.0) / math.log(6.4)


def hz(mels):
    """The inverse of `mel`."""
    return mels * 200 / 3.0 if mels < 15 else 1000 * math.exp(math.log(6.4) * (mels - 15) / 27)


def filters(channels=CHANNELS, transform=TRANSFORM, rate_hz=RATE_HZ):
    """Triangles over the frequencies of a transform, of equal area: (channels, transform / 2 + 1)."""
    bins_hz = torch.linspace(0, rate_hz / 2.0, transform // 2 + 1, dtype=torch.float64)
    step = mel(rate_hz / 2.0) / (channels + 1)
    edges_hz = [hz(step * number) for number in range(channels + 2)]
    rows = []
    for low, middle, high in zip(edges_hz, edges_hz[1:], edges_hz[2:]):
        rising, falling = (bins_hz - low) / (middle - low), (high - bins_hz) / (high - middle)
        rows.append(torch.min(rising, falling).clamp(min=0) * (2.0 / (high - low)))
    return torch.stack(rows).float()


class LogMel(object):
    """Turns the samples of one clip into frames (T, CHANNELS * SPLICED)."""

    def __init__(self):
        self._filters, self._window = filters(), torch.hann_window(WINDOW, periodic=False)

    def __call__(self, samples):
        sharpened = torch.cat((samples[:1], samples[1:] - _EMPHASIS * samples[:-1]))
        spectrum = torch.stft(
            sharpened, TRANSFORM, HOP, WINDOW, self._window, center=True, pad_mode="constant", return_complex=True
        )
        power = spectrum.real**2 + spectrum.imag**2
        heard = torch.log(self._filters @ power + _LEAST)
        spread = heard.std(1, keepdim=True) + 1e-5
        return spliced(((heard - heard.mean(1, keepdim=True)) / spread).t())


def spliced(frames):
    """Each SPLICED frames as one; what is left over at the end is filled up with silence."""
    short = -frames.shape[0] % SPLICED
    if short:
        frames = torch.cat((frames, frames.new_zeros(short, frames.shape[1])))
    return frames.reshape(frames.shape[0] // SPLICED, -1)


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
    reported, state = transducer.start(count)
    for frame in range(int(lengths.max())):
        listening = lengths > frame
        for _ in range(MOST_LETTERS):
            best = transducer.join(encoded[:, frame : frame + 1], reported)[:, 0, 0].argmax(1)
            listening = listening & (best != blank)
            if not bool(listening.any()):
                break
            for place in listening.nonzero().flatten().tolist():
                texts[place].append(int(best[place]))
            reported, state = _advanced(transducer, best, listening, reported, state)
    return texts


def _advanced(transducer, letters, moving, reported, state):
    """The prediction network one letter on, for those texts that got one."""
    # A blank is no input: where it stands, the result is thrown away anyway.
    ahead, after = transducer.predict(letters.masked_fill(~moving, 0).unsqueeze(1), state)
    column = moving.view(-1, 1, 1)
    kept = tuple(torch.where(column.transpose(0, 1), new, old) for new, old in zip(after, state))
    return torch.where(column, ahead, reported), kept


def settle(transducer, encoded, seconds_a_frame):
    """Make random weights speak: about as many letters a second as people do, and not the same one all the time.

    As they come, random weights say nothing at all or one letter as often as they may, and how long decoding takes
    depends on it: this is the one place where weights change the cost. So what is said depends on the frame more than
    on the letters before, each class's score gets mean 0 and spread 1 over the frames of a clip, and "no letter" is
    made as likely as it should be.
    """
    first, last, blank = transducer.joint[0], transducer.joint[-1], transducer.blank
    with torch.no_grad():
        reported = _after_letters(transducer)
        by_frame, by_letter = first.weight[:, : encoded.shape[2]], first.weight[:, encoded.shape[2] :]
        heard, spelt = encoded[0] @ by_frame.t(), reported @ by_letter.t()
        by_letter *= _SAID_BEFORE * heard.std(0).mean() / (spelt - spelt.mean(0)).std().clamp(min=1e-6)
        scores = transducer.join(encoded[:1], reported[:1].unsqueeze(0))[0, :, 0]
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
