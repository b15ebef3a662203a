"""VGG-11 (Simonyan and Zisserman 2014, configuration A), without batch norm."""

TITLE = "VGG-11"
KIND = "image"
INPUT = (3, 224, 224)
CLASSES = 1000
PARAMS = 132863336
FLOPS = 7616525288

_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # widths of the convolutions; each stage ends with a pool


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width."""
    from torch import nn

    from tare_inside.layers import scaled

    channels, layers = 3, []
    for stage in _STAGES:
        for width in stage:
            inputs, channels = channels, scaled(width, scale)
            layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU(inplace=True)]
        layers.append(nn.MaxPool2d(2))
    hidden = scaled(4096, scale)
    return nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        nn.Linear(channels * 7 * 7, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(hidden, classes),
    )
