"""Counts what one pass through a network takes, the way the papers' tables do.

A multiplication with its addition counts once, a bias once, a normalised value twice (scale and shift). Activations,
pooling, look-ups in tables and the sums around residual blocks are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tare_inside.workloads.layers import Affine, Attend, Products, Vocabulary


def _convolution(layer: Any, inputs: Any, output: Any) -> int:
    return int(output.numel()) * (layer.weight[0].numel() + (layer.bias is not None))


def _linear(layer: Any, inputs: Any, output: Any) -> int:
    return int(output.numel()) * (layer.in_features + (layer.bias is not None))


def _normalised(layer: Any, inputs: Any, output: Any) -> int:
    return 2 * int(output.numel())


def _lstm(layer: Any, inputs: Any, output: Any) -> int:
    steps = inputs[0].shape[0] * inputs[0].shape[1]
    return int(steps) * sum(weight.numel() for weight in layer.parameters())  # each weight and bias once a step


def _attention(layer: Any, inputs: Any, output: Any) -> int:
    query, key = inputs[0], inputs[1]
    return 2 * int(query.numel()) * int(key.shape[-2])


def _products(layer: Any, inputs: Any, output: Any) -> int:
    return int(inputs[0].numel()) * int(inputs[0].shape[1])


def _vocabulary(layer: Any, inputs: Any, output: Any) -> int:
    return int(output.numel()) * (inputs[0].shape[-1] + 1)


COSTS: dict[type[nn.Module], Callable[[Any, Any, Any], int]] = {
    nn.Conv2d: _convolution,
    nn.Linear: _linear,
    nn.BatchNorm2d: _normalised,
    nn.LayerNorm: _normalised,
    Affine: _normalised,
    nn.LSTM: _lstm,
    Attend: _attention,
    Products: _products,
    Vocabulary: _vocabulary,
}


def multiply_adds(network: nn.Module, run: Callable[[nn.Module], object]) -> int:
    """What `run` makes the network count, forward; the network is left as it was."""
    total = 0

    def add(layer: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal total
        total += COSTS[type(layer)](layer, inputs, output)

    hooks = [layer.register_forward_hook(add) for layer in network.modules() if type(layer) in COSTS]
    with torch.no_grad():
        run(network.eval())
    for hook in hooks:
        hook.remove()
    return total
