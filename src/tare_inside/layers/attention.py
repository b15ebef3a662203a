"""Multi-head attention in plain matrix products: the same code on every torch, with or without a fused kernel."""

import math

import torch
from torch import nn


class Attend(nn.Module):
    """Softmax of query times key, times value, for heads that are already apart; `mask` is added to the scores."""

    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout

    def forward(self, query, key, value, mask=None):
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
        if mask is not None:
            scores = scores + mask
        weights = nn.functional.dropout(scores.softmax(-1), self.dropout, self.training)
        return torch.matmul(weights, value)


class Heads(nn.Module):
    """Query, key and value, each by a linear layer of its own, and attention in so many heads."""

    def __init__(self, width, heads, dropout, value_width=None):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(value_width or width, width)
        self.attend = Attend(dropout)
        self.heads = heads

    def forward(self, query, key, value, mask=None):
        query, key, value = (
            self._apart(layer(tokens)) for layer, tokens in ((self.query, query), (self.key, key), (self.value, value))
        )
        return self.attend(query, key, value, mask).transpose(1, 2).flatten(2)

    def _apart(self, tokens):
        return tokens.view(tokens.shape[0], tokens.shape[1], self.heads, -1).transpose(1, 2)


def score_mask(mask):
    """What is added to the scores, from a mask (N, L) that is true where there is a token; None if there is none."""
    if mask is None:
        return None
    return (~mask.bool())[:, None, None, :] * -1e9
