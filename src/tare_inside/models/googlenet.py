"""GoogLeNet (Szegedy et al. 2014), which S2 names as future work: the article's, without its two side classifiers."""

TITLE = "GoogLeNet"
KIND = "image"
INPUT = (3, 224, 224)
CLASSES = 1000
PARAMS = 6998552
FLOPS = 1585899032

# 1x1; 1x1 and 3x3; 1x1 and 5x5; 1x1 after pooling. None: pooled to half the size.
_MODULES = (
    (64, (96, 128), (16, 32), 32), (128, (128, 192), (32, 96), 64), None,
    (192, (96, 208), (16, 48), 64), (160, (112, 224), (24, 64), 64), (128, (128, 256), (24, 64), 64),
    (112, (144, 288), (32, 64), 64), (256, (160, 320), (32, 128), 128), None,
    (256, (160, 320), (32, 128), 128), (384, (192, 384), (48, 128), 128),
)  # fmt: skip


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width."""
    from torch import nn

    from tare_inside.image_layers import Inception
    from tare_inside.layers import scaled

    first, second = scaled(64, scale), scaled(192, scale)
    layers = [
        nn.Conv2d(3, first, 7, stride=2, padding=3),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        nn.LocalResponseNorm(5),
        nn.Conv2d(first, first, 1),
        nn.ReLU(inplace=True),
        nn.Conv2d(first, second, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.LocalResponseNorm(5),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
    ]
    channels = second
    for module in _MODULES:
        if module is None:
            layers.append(nn.MaxPool2d(3, stride=2, ceil_mode=True))
            continue
        one, three, five, pooled = module
        one, pooled = scaled(one, scale), scaled(pooled, scale)
        three, five = ([scaled(width, scale) for width in pair] for pair in (three, five))
        layers.append(Inception(channels, one, three, five, pooled))
        channels = one + three[1] + five[1] + pooled
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(channels, classes))
