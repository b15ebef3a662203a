"""A word-level LSTM language model: the two layers of 650 units of Zaremba et al. (2014), with BERT's vocabulary."""

TITLE = "LSTM"
KIND = "tokens"
INPUT = (128,)
CLASSES = 30522  # the vocabulary
PARAMS = 46479522
FLOPS = 3409948416


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width, `classes` the vocabulary."""
    from tare_inside.layers import WordLstm, scaled

    return WordLstm(classes, scaled(650, scale), layers=2)
