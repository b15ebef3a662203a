"""SqueezeNet 1.0 (Iandola et al. 2016): the version of the article, which the papers cite; 1.1 is a later one."""

TITLE = "SqueezeNet 1.0"
KIND = "image"
INPUT = (3, 224, 224)
CLASSES = 1000
PARAMS = 1248424
FLOPS = 823270824

_STAGES = (((16, 64), (16, 64), (32, 128)), ((32, 128), (48, 192), (48, 192), (64, 256)), ((64, 256),))


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width. Images: from 21 pixels."""
    from torch import nn

    from tare_inside.image_layers import Fire
    from tare_inside.layers import scaled

    channels = scaled(96, scale)
    layers = [nn.Conv2d(3, channels, 7, stride=2), nn.ReLU(inplace=True)]
    for stage in _STAGES:
        layers.append(nn.MaxPool2d(3, stride=2, ceil_mode=True))
        for squeezed, expanded in stage:
            expanded = scaled(expanded, scale)
            layers.append(Fire(channels, scaled(squeezed, scale), expanded))
            channels = 2 * expanded
    return nn.Sequential(
        *layers,
        nn.Dropout(0.5),
        nn.Conv2d(channels, classes, 1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
