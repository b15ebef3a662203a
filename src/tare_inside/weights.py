"""A network with random weights that depend on the seed alone, and that behaves as a trained one does.

Random weights do not change what a network costs, with one exception: without statistics in its batch normalisation
the signal dies out from layer to layer, every input gives the same answer, and a digest of answers would say nothing.
So the statistics are taken from one pass over seeded noise, as training would have taken them from the data.
"""

import inspect

import torch

from tare_inside import named


def seeded(model, seed, example, scale=1.0, **options):
    """The network called `model`, ready for inference; `example` is a tuple of tensors like those it will get."""
    torch.manual_seed(seed)
    build = named.find("models", model).build
    if scale != 1.0:
        if "scale" not in inspect.signature(build).parameters:
            raise ValueError("{} comes in one size only: leave `scale` out.".format(model))
        options["scale"] = scale
    network = build(**options).eval()
    settle(network, example)
    return network


def settle(network, example):
    """Give batch normalisation the statistics of one pass over the example."""
    layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 1.0  # of this pass alone, nothing of the zeros and ones that it starts with
        layer.train()
    with torch.no_grad():
        network(*example)
    for layer, momentum in zip(layers, momenta):
        layer.momentum = momentum
        layer.eval()


def noise(shape, seed):
    """Numbers that look like a normalised image, the same for the same seed."""
    chance = torch.Generator()
    chance.manual_seed(seed)
    return torch.randn(shape, generator=chance)
