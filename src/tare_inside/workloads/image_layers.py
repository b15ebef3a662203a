"""Convolutional blocks of which the image networks in models.py are built; layers.py has those of other networks."""

import torch
from torch import nn
from torch.nn.functional import pad

from tare_inside.workloads.layers import divisible, scaled


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


class Fire(nn.Module):
    """Squeezes the channels by a 1 x 1 convolution, then expands them by one of 1 x 1 beside one of 3 x 3."""

    def __init__(self, inputs, squeezed, expanded):
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(inputs, squeezed, 1), nn.ReLU(inplace=True))
        self.expand_1 = nn.Sequential(nn.Conv2d(squeezed, expanded, 1), nn.ReLU(inplace=True))
        self.expand_3 = nn.Sequential(nn.Conv2d(squeezed, expanded, 3, padding=1), nn.ReLU(inplace=True))

    def forward(self, images):
        squeezed = self.squeeze(images)
        return torch.cat((self.expand_1(squeezed), self.expand_3(squeezed)), 1)


class Inception(nn.Module):
    """Four ways side by side: 1x1; 1x1 then 3x3; 1x1 then 5x5; pooled then 1x1. No norms, as in the article."""

    def __init__(self, inputs, one, three, five, pooled):
        super().__init__()
        self.ways = nn.ModuleList(
            (
                nn.Sequential(*_conv(inputs, one, 1)),
                nn.Sequential(*_conv(inputs, three[0], 1), *_conv(three[0], three[1], 3)),
                nn.Sequential(*_conv(inputs, five[0], 1), *_conv(five[0], five[1], 5)),
                nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), *_conv(inputs, pooled, 1)),
            )
        )

    def forward(self, images):
        return torch.cat([way(images) for way in self.ways], 1)


def _conv(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2), nn.ReLU(inplace=True)


class Separable(nn.Sequential):
    """Twice: ReLU, each channel by itself, all channels at each place, norm; the first may halve the picture."""

    def __init__(self, inputs, outputs, size, stride=1):
        super().__init__(*self._once(inputs, outputs, size, stride), *self._once(outputs, outputs, size, 1))

    @staticmethod
    def _once(inputs, outputs, size, stride):
        return (
            nn.ReLU(),
            nn.Conv2d(inputs, inputs, size, stride=stride, padding=size // 2, groups=inputs, bias=False),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs, eps=1e-3),
        )


def _squeezed(inputs, outputs):
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs, eps=1e-3))


class HalvedTwice(nn.Module):
    """Half the picture by every second place, and by the places between them, a part of the channels each."""

    def __init__(self, inputs, outputs):
        super().__init__()
        first = max(1, outputs // 2)
        self.even = nn.Conv2d(inputs, first, 1, bias=False)
        self.odd = nn.Conv2d(inputs, max(1, outputs - first), 1, bias=False)
        self.norm = nn.BatchNorm2d(first + max(1, outputs - first), eps=1e-3)

    def forward(self, images):
        images = nn.functional.relu(images)
        between = pad(images, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.norm(torch.cat([self.even(images[:, :, ::2, ::2]), self.odd(between[:, :, ::2, ::2])], 1))


class NasCell(nn.Module):
    """A cell of NASNet-A, of what came out of the last cell and of the one before it; the smaller kind halves."""

    def __init__(self, inputs, before, width, halves, before_is_larger):
        super().__init__()
        self.halves, self.first = halves, before is None
        self.last = _squeezed(inputs, width)
        other = inputs if before is None else width
        if before is not None:
            self.other = HalvedTwice(before, width) if before_is_larger else _squeezed(before, width)
        stride = 2 if halves else 1
        self.pool = nn.AvgPool2d(3, stride=stride, padding=1, count_include_pad=False)
        if halves:
            self.five = Separable(width, width, 5, 2)
            self.sevens = nn.ModuleList(Separable(other, width, 7, 2) for _ in range(2))
            self.other_five = Separable(other, width, 5, 2)
            self.most = nn.MaxPool2d(3, stride=2, padding=1)
            self.mean = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
            self.three = Separable(width, width, 3)
        else:
            self.fives = nn.ModuleList(Separable(width, width, 5) for _ in range(2))
            self.threes = nn.ModuleList(Separable(width, width, 3) for _ in range(3))
        self.outputs = (4 if halves else 6) * width

    def forward(self, last, before):
        other = last if self.first else self.other(before)
        last = self.last(last)
        if self.halves:
            one = self.five(last) + self.sevens[0](other)
            two = self.most(last) + self.sevens[1](other)
            three = self.pool(last) + self.other_five(other)
            return torch.cat([two, three, self.mean(one) + two, self.three(one) + self.most(last)], 1)
        one = self.fives[0](last) + self.threes[0](other)
        two = self.fives[1](other) + self.threes[1](other)
        mean = self.pool(other)
        return torch.cat([other, one, two, self.pool(last) + other, mean + mean, self.threes[2](last) + last], 1)


class NasNet(nn.Module):
    """A first convolution, two cells that halve, then three rows of normal cells with a cell that halves between."""

    def __init__(self, stem, width, normal, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, stride=2, bias=False), nn.BatchNorm2d(stem, eps=1e-3))
        kinds = [(max(1, width // 4), True), (max(1, width // 2), True)]
        for row in range(3):
            kinds += [(width * 2**row, True)] if row else []
            kinds += [(width * 2**row, False)] * normal
        cells, before, last, larger = [], None, stem, False
        for filters, halves in kinds:
            cells.append(NasCell(last, before, filters, halves, larger))
            before, last, larger = last, cells[-1].outputs, halves
        self.cells = nn.ModuleList(cells)
        self.classify = nn.Linear(last, classes)

    def forward(self, images):
        last, before = self.stem(images), None
        for cell in self.cells:
            last, before = cell(last, before), last
        found = nn.functional.relu(last).mean((2, 3))
        return self.classify(nn.functional.dropout(found, 0.5, self.training))
