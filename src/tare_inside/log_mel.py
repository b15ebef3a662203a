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
