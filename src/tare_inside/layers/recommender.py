"""DLRM (Naumov et al. 2019): numbers through one network, categories through tables, their products through another."""

import torch
from torch import nn


def _perceptron(widths, last):
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *last)


class Products(nn.Module):
    """The product of each vector with each other one, beside the first vector itself."""

    def __init__(self, vectors):
        super().__init__()
        rows, columns = zip(*((row, column) for row in range(vectors) for column in range(row)))
        self.register_buffer("rows", torch.tensor(rows), persistent=False)
        self.register_buffer("columns", torch.tensor(columns), persistent=False)

    def forward(self, vectors):
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.rows, self.columns]
        return torch.cat((vectors[:, 0], products), 1)


class Recommender(nn.Module):
    """How likely each click is: one score (N,) between 0 and 1."""

    def __init__(self, numbers, tables, bottom, top):
        super().__init__()
        width, vectors = bottom[-1], len(tables) + 1
        # Sparse gradients: a step touches a few rows of each table, not hundreds of millions of numbers.
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for rows in tables)
        self.bottom = _perceptron((numbers,) + tuple(bottom), [nn.ReLU()])
        self.products = Products(vectors)
        self.top = _perceptron((width + vectors * (vectors - 1) // 2,) + tuple(top), [nn.Sigmoid()])

    def forward(self, numbers, categories):
        """Numbers (N, 13) and, for each table, one row of it (N, 26)."""
        found = [table(categories[:, place : place + 1]) for place, table in enumerate(self.tables)]
        vectors = torch.stack([self.bottom(numbers)] + found, 1)
        return self.top(self.products(vectors)).squeeze(1)
