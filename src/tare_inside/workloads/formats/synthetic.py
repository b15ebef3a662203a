"""Made-up prose: words as frequent, as long, and in sentences as long, as those of an encyclopedia in English.

Made-up photographs: JPEG files of a wanted size that compress, and cost to decode, as photographs do.

A scene is the sum of random fields from coarse to fine, as in nature, plus the pattern of its class, so that a network
can learn to tell classes apart. How much fine detail it gets decides the size of its file; how much is needed for which
size is measured on a few scenes first. Needs Pillow.

Made-up speech: letters as short sounds of a voice, hummed or hissed, with silence that is not quite silent.

It has pitch, formants, pauses and noise, so that features cost what they should and differ from letter to letter.
"""

import array
import bisect
import io
import itertools
import math
import sys

from tare_inside.workloads.formats.make import chance

WORDS = 28000

_ONSETS = "b c d f g h j l m n p r s t v w b c d f g l m n p r s t br ch cl gr pr sh st th tr".split() + [""]
_VOWELS = "a e i o u a e i o a e i o ai ea ou".split()
_CODAS = ["", "", "", "", "n", "r", "s", "t", "l", "d", "nd", "ck"]
_SYLLABLES = ((600, 1), (12000, 2), (WORDS, 3))  # the commonest words are short
_FLATTENING = 2.7  # Mandelbrot's: the commonest words are a little less common than Zipf has it
_MEDIAN_WORDS, _SPREAD = 19, 0.45  # of a sentence, and of its logarithm


class Prose(object):
    """A vocabulary and the sentences that are drawn from it."""

    def __init__(self, seed):
        self.words = _coined(chance("prose", seed))  # the commonest first
        shares = (1.0 / (rank + _FLATTENING) for rank in range(1, len(self.words) + 1))
        self._up_to = list(itertools.accumulate(shares))

    def phrase(self, luck, count):
        """So many words, each as often as it is common."""
        words, up_to, draw = self.words, self._up_to, luck.random
        last = up_to[-1]
        return [words[bisect.bisect(up_to, draw() * last)] for _ in range(count)]

    def sentence(self, luck):
        """The words of a sentence, with commas and the full stop apart, as tokenised text has them."""
        count = max(4, min(60, int(luck.lognormvariate(0, _SPREAD) * _MEDIAN_WORDS)))
        words = self.phrase(luck, count)
        words[0] = words[0].capitalize()
        for place in range(9, count - 2, 10):
            words[place] += " ,"
        return words + ["."]


def _coined(luck):
    words, known = [], set()
    for until, syllables in _SYLLABLES:
        while len(words) < until:
            parts = (luck.choice(_ONSETS) + luck.choice(_VOWELS) + luck.choice(_CODAS) for _ in range(syllables))
            word = "".join(parts)
            if word not in known:
                known.add(word)
                words.append(word)
    return words


_DETAILS = 4  # fields of fine detail; each scene takes a part of one, turned one of four ways
_STEPS = (0.0, 0.02, 0.05, 0.1, 0.17, 0.25, 0.35, 0.5, 0.7, 1.0)  # shares of detail that are tried
_PROBE = (512, 384)
_PATTERN_SHARE = 0.4


class Scenes(object):
    """Makes scenes of so many classes, not larger than `width` x `height`, at one JPEG quality."""

    def __init__(self, seed, width, height, quality):
        from PIL import Image

        self._image = Image
        self._seed, self._quality = seed, quality
        self._room = (max(width, _PROBE[0]) * 5 // 4, max(height, _PROBE[1]) * 5 // 4)
        self._details, self._patterns = {}, {}
        self._curve = self._measured()

    def jpeg(self, luck, label, width, height, size_bytes):
        """One scene as a JPEG file of about this size."""
        share = self._share_for(8.0 * size_bytes / (width * height))
        return self._encoded(self._scene(luck, label, width, height, share))

    def _scene(self, luck, label, width, height, share):
        image = self._image
        coarse = self._noise(luck, 8, 6)
        for part, weight in ((32, 0.25), (8, 0.12)):
            size = (max(8, width // part), max(6, height // part))
            coarse = image.blend(coarse.resize(size, image.BICUBIC), self._noise(luck, *size), weight)
        coarse = image.blend(coarse, self._pattern(label).resize(coarse.size, image.BICUBIC), _PATTERN_SHARE)
        return image.blend(coarse.resize((width, height), image.BICUBIC), self._detail(luck, width, height), share)

    def _detail(self, luck, width, height):
        number, turn = luck.randrange(_DETAILS), luck.randrange(4)
        left = luck.randrange(self._room[0] - width + 1)
        top = luck.randrange(self._room[1] - height + 1)
        if number not in self._details:
            self._details[number] = self._fine(chance("detail", self._seed, number))
        part = self._details[number].crop((left, top, left + width, top + height))
        flips = (None, self._image.FLIP_LEFT_RIGHT, self._image.FLIP_TOP_BOTTOM, self._image.ROTATE_180)
        return part if flips[turn] is None else part.transpose(flips[turn])

    def _fine(self, luck):
        """Fine detail is mostly light and dark, less of it colour."""
        image, (width, height) = self._image, self._room
        grey = self._noise(luck, width, height).convert("L")
        for part in (2, 4, 8):
            size = (width // part, height // part)
            grey = image.blend(self._noise(luck, *size).convert("L").resize(self._room, image.BICUBIC), grey, 0.7)
        colour = self._noise(luck, width // 4, height // 4).resize(self._room, image.BICUBIC)
        return image.blend(grey.point(_stretched).convert("RGB"), colour, 0.15)

    def _pattern(self, label):
        if label not in self._patterns:
            self._patterns[label] = self._noise(chance("pattern", self._seed, label), 5, 5)
        return self._patterns[label]

    def _noise(self, luck, width, height):
        size = 3 * width * height
        return self._image.frombytes("RGB", (width, height), luck.getrandbits(8 * size).to_bytes(size, "big"))

    def _encoded(self, scene):
        into = io.BytesIO()
        scene.save(into, "JPEG", quality=self._quality)
        return into.getvalue()

    def _measured(self):
        """Bits a pixel for each share of detail that is tried, over a few scenes; never falling."""
        bits, most = [], 0.0
        for share in _STEPS:
            sizes = []
            for number in range(3):
                scene = self._scene(chance("probe", self._seed, number), number, _PROBE[0], _PROBE[1], share)
                sizes.append(len(self._encoded(scene)))
            most = max(most + 1e-6, 8.0 * sum(sizes) / len(sizes) / (_PROBE[0] * _PROBE[1]))
            bits.append(most)
        return list(zip(bits, _STEPS))

    def _share_for(self, bits):
        """The share of detail that gives so many bits a pixel, between the steps that were tried."""
        if bits <= self._curve[0][0]:
            return self._curve[0][1]
        for (low, below), (high, above) in zip(self._curve, self._curve[1:]):
            if bits <= high:
                return below + (above - below) * (bits - low) / (high - low)
        return self._curve[-1][1]


def _stretched(level):
    """More contrast: averages of noise crowd around the middle."""
    return max(0, min(255, 128 + 2 * (level - 128)))


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
