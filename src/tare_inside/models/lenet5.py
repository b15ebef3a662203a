"""LeNet-5 (LeCun et al. 1998) in its classical shape: 61,706 parameters, 28 x 28 images padded to 32 x 32."""

TITLE = "LeNet-5"


def build():
    """The network, with torch's default initialisation."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),
        nn.Tanh(),
        nn.Linear(120, 84),
        nn.Tanh(),
        nn.Linear(84, 10),
    )
