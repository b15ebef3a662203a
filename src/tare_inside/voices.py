"""Made-up speech: letters as short sounds of a voice, hummed or hissed, with silence that is not quite silent.

It has pitch, formants, pauses and noise, so that features cost what they should and differ from letter to letter.
"""

import array
import math
import sys

from tare_inside.making import chance

RATE_HZ = 16000

_VOICES = 8
_HISSED = frozenset("cfhkpqstx")
_HARMONICS = 6
_PAUSE_S, _NOISE_S = 0.09, 4
_LOUD, _NOISE = 7000, 40


class Voices(object):
    """Says text aloud, as 16 bit samples."""

    def __init__(self, seed):
        self._seed, self._sounds = seed, {}
        luck = chance("noise", seed)
        self._noise = _bytes(int(luck.gauss(0, _NOISE)) for _ in range(_NOISE_S * RATE_HZ))

    def said(self, luck, text, seconds):
        """The samples, little-endian, of exactly so many seconds; what is too long is cut off."""
        voice, size = luck.randrange(_VOICES), 2 * int(seconds * RATE_HZ)
        parts, there = [], 0
        for letter in text.lower():
            part = self._pause(luck, _PAUSE_S) if letter == " " else self._sound(voice, letter, luck.randrange(3))
            parts.append(part)
            there += len(part)
            if there >= size:
                break
        while there < size:
            parts.append(self._pause(luck, 1.0))
            there += len(parts[-1])
        return b"".join(parts)[:size]

    def _pause(self, luck, seconds):
        size = 2 * int(seconds * RATE_HZ)
        begin = 2 * luck.randrange((len(self._noise) - size) // 2)
        return self._noise[begin : begin + size]

    def _sound(self, voice, letter, variant):
        key = (voice, letter, variant)
        if key not in self._sounds:
            self._sounds[key] = _sounded(chance("sound", self._seed, *key), voice, letter)
        return self._sounds[key]


def _sounded(luck, voice, letter):
    """One letter: 45 to 80 ms that swell and fade."""
    count = int(RATE_HZ * luck.uniform(0.045, 0.08))
    if letter in _HISSED:
        wave = (luck.gauss(0, 0.25) for _ in range(count))
    else:
        wave = _hummed(count, 90 + 18 * voice + luck.uniform(-6, 6), 300 + 70 * (ord(letter) % 13))
    swell = (math.sin(math.pi * place / count) for place in range(count))
    return _bytes(max(-32768, min(32767, int(_LOUD * up * value))) for up, value in zip(swell, wave))


def _hummed(count, pitch_hz, formant_hz):
    """Harmonics of a pitch, the loudest of them near the formants."""
    strengths = [
        (order, 1.0 / (1 + abs(order * pitch_hz - formant_hz) / 200.0) + 0.3 / order)
        for order in range(1, _HARMONICS + 1)
    ]
    turn = 2 * math.pi * pitch_hz / RATE_HZ
    for place in range(count):
        yield sum(strength * math.sin(order * turn * place) for order, strength in strengths) / 2


def _bytes(samples):
    packed = array.array("h", samples)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
