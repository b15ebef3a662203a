"""Residual networks (He et al. 2015), in the version whose stride lies on the 3 x 3 convolution ("v1.5")."""

from torch import nn

from tare_inside.layers.width import scaled


def _convolution(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class _Block(nn.Module):
    """A body and the way around it, added up; the way around is a convolution where the shape changes."""

    def __init__(self, body, inputs, outputs, stride):
        super().__init__()
        self.body = body
        self.around = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        self.activation = nn.ReLU(inplace=True)

    def forward(self, images):
        found = self.body(images)
        found += self.around(images)
        return self.activation(found)


class Basic(_Block):
    """Two 3 x 3 convolutions: the block of ResNet-18 and ResNet-34."""

    widening = 1

    def __init__(self, inputs, width, stride):
        body = nn.Sequential(
            _convolution(inputs, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _convolution(width, width, 3),
            nn.BatchNorm2d(width),
        )
        super().__init__(body, inputs, width, stride)


class Bottleneck(_Block):
    """A 3 x 3 convolution between two of 1 x 1: the block of ResNet-50 and the deeper ones."""

    widening = 4

    def __init__(self, inputs, width, stride):
        outputs = width * self.widening
        body = nn.Sequential(
            _convolution(inputs, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _convolution(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _convolution(width, outputs, 1),
            nn.BatchNorm2d(outputs),
        )
        super().__init__(body, inputs, outputs, stride)


def residual_network(block, counts, classes, scale):
    """The whole network: a stem, four stages of so many blocks, the mean of each channel, a linear classifier."""
    channels = scaled(64, scale)
    layers = [
        _convolution(3, channels, 7, stride=2),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    for stage, count in enumerate(counts):
        width = scaled(64 * 2**stage, scale)
        for place in range(count):
            stride = 2 if stage > 0 and place == 0 else 1
            layers.append(block(channels, width, stride))
            channels = width * block.widening
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
