"""Made-up prose: words as frequent, as long, and in sentences as long, as those of an encyclopedia in English."""

import bisect
import itertools

from tare_inside.making import chance

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
