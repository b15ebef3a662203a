"""BERT-large (Devlin et al. 2018) for question answering: two scores for each token, start and end of the answer."""

TITLE = "BERT-large"
KIND = "questions"
INPUT = (384,)
CLASSES = 2  # start, end
PARAMS = 334094338
FLOPS = 123336131328
VOCABULARY = 30522
LONGEST = 512

_HEADS, _HEAD_WIDTH, _LAYERS = 16, 64, 24


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its depth and of its heads."""
    from tare_inside.layers import QuestionAnswering, repeated

    if classes != CLASSES:
        raise ValueError("BERT-large here scores where an answer starts and ends: 2 classes, not {}.".format(classes))
    heads = repeated(_HEADS, scale)
    return QuestionAnswering(VOCABULARY, LONGEST, heads * _HEAD_WIDTH, heads, repeated(_LAYERS, scale))
