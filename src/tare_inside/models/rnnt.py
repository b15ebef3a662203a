"""RNN-T as MLPerf has it: an encoder of five LSTM layers with a time reduction, a prediction and a joint network."""

TITLE = "RNN-T"
KIND = "speech"
INPUT = (500, 240)  # 15 s: frames of 80 mel channels every 10 ms, three of them side by side
CLASSES = 29  # 26 letters, blank space, apostrophe; the last one says "no letter"
PARAMS = 45323037
FLOPS = 14724103250  # of 15 s, with one letter and one joint score for each encoded frame
FEATURES = 240


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width."""
    from tare_inside.layers import Transducer, scaled

    encoded, predicted, joint = (scaled(width, scale) for width in (1024, 320, 512))
    return Transducer(FEATURES, encoded, predicted, joint, classes)
