"""AlexNet in its one-column version (Krizhevsky 2014), as in torchvision."""

TITLE = "AlexNet"
KIND = "image"
INPUT = (3, 224, 224)
CLASSES = 1000
PARAMS = 61100840
FLOPS = 714682664


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width. Images: from 63 pixels."""
    from torch import nn

    from tare_inside.layers import scaled

    c1, c2, c3, c4, hidden = (scaled(width, scale) for width in (64, 192, 384, 256, 4096))
    return nn.Sequential(
        nn.Conv2d(3, c1, 11, stride=4, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(c1, c2, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(c2, c3, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(c3, c4, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(c4, c4, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2),
        nn.AdaptiveAvgPool2d(6),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(c4 * 6 * 6, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, classes),
    )
