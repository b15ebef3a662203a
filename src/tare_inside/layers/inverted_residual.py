"""The block of MobileNetV3 (Howard et al. 2019): widen, convolve each channel by itself, weigh channels, narrow."""

from torch import nn

from tare_inside.layers.width import divisible


def convolution(inputs, outputs, kernel, stride=1, groups=1, activation=None):
    """A convolution, its batch norm, and the activation if there is one."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=0.001, momentum=0.01),
    ]
    return nn.Sequential(*layers, *([activation(inplace=True)] if activation else []))


class SqueezeExcitation(nn.Module):
    """Weighs each channel by what all channels are on average."""

    def __init__(self, channels):
        super().__init__()
        squeezed = divisible(channels / 4)
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.ReLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, images):
        return self.weigh(images) * images


class InvertedResidual(nn.Module):
    """One block; what goes in is added to what comes out where both have the same shape."""

    def __init__(self, inputs, widened, outputs, kernel, stride, squeeze, activation):
        super().__init__()
        layers = []
        if widened != inputs:
            layers.append(convolution(inputs, widened, 1, activation=activation))
        layers.append(convolution(widened, widened, kernel, stride, groups=widened, activation=activation))
        if squeeze:
            layers.append(SqueezeExcitation(widened))
        layers.append(convolution(widened, outputs, 1))
        self.body = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, images):
        found = self.body(images)
        if self.adds:
            found += images
        return found
