"""Made-up photographs: JPEG files of a wanted size that compress, and cost to decode, as photographs do.

A scene is the sum of random fields from coarse to fine, as in nature, plus the pattern of its class, so that a network
can learn to tell classes apart. How much fine detail it gets decides the size of its file; how much is needed for which
size is measured on a few scenes first. Needs Pillow.
"""

import io

from tare_inside.making import chance

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
