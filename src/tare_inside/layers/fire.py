"""The fire module of SqueezeNet (Iandola et al. 2016)."""

import torch
from torch import nn


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
