"""GPT-2 (Radford et al. 2019): a decoder, in the article's two smaller sizes and a tiny one for tests."""

TITLE = "GPT-2"
KIND = "tokens"
INPUT = (128,)
CLASSES = 50257  # the vocabulary
PARAMS = 124439808
FLOPS = 16129622016
LONGEST = 1024

HEAD_WIDTH = 64
SIZES = {"tiny": (2, 2, 1024), "small": (12, 12, CLASSES), "medium": (24, 16, CLASSES)}  # layers, heads, vocabulary
TITLES = {"tiny": "GPT-2 tiny", "small": "GPT-2 (124 M)", "medium": "GPT-2 medium (355 M)"}


def build(classes=None, scale=1.0, size="small"):
    """The network, with the article's initialisation; `scale` is the share of its depth and of its heads."""
    from tare_inside.layers import Decoder, repeated

    layers, heads, vocabulary = SIZES[size]
    heads = repeated(heads, scale)
    return Decoder(classes or vocabulary, LONGEST, heads * HEAD_WIDTH, heads, repeated(layers, scale))
