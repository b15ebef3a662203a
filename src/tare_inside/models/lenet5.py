"""LeNet-5 (LeCun et al. 1998) in its classical shape: 61,706 parameters, 28 x 28 images padded to 32 x 32."""

TITLE = "LeNet-5"
KIND = "image"
INPUT = (1, 28, 28)
CLASSES = 10
PARAMS = 61706
FLOPS = 423038
PAPER_FLOPS = 4400000  # of another LeNet-5, with 431,080 parameters: see docs/reference/workloads.md


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of its width."""
    from torch import nn

    from tare_inside.layers import scaled

    c1, c2, h1, h2 = (scaled(width, scale, by=2) for width in (6, 16, 120, 84))
    return nn.Sequential(
        nn.Conv2d(1, c1, 5, padding=2),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(c1, c2, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(c2 * 5 * 5, h1),
        nn.Tanh(),
        nn.Linear(h1, h2),
        nn.Tanh(),
        nn.Linear(h2, classes),
    )
