"""MobileBERT (Sun et al. 2020) with its masked-language head: 24.6 M parameters of encoder, 12 M of head."""

TITLE = "MobileBERT"
KIND = "tokens"
INPUT = (128,)
CLASSES = 30522  # the vocabulary
PARAMS = 36596538
FLOPS = 4751334656
LONGEST = 512


def build(classes=CLASSES, scale=1.0):
    """The network, with the article's initialisation; `scale` is the share of its depth and of its width."""
    from tare_inside.layers import MaskedLanguage, repeated, scaled

    narrow = scaled(128, scale)  # the width of an embedded token, too
    return MaskedLanguage(classes, LONGEST, narrow, 4 * narrow, narrow, repeated(24, scale))
