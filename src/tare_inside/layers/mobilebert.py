"""MobileBERT (Sun et al. 2020): a thin, deep BERT whose layers work in a bottleneck; with the masked-language head."""

import torch
from torch import nn
from torch.nn.functional import pad

from tare_inside.layers.attention import Heads
from tare_inside.layers.token_positions import token_positions

_HEADS = 4
_FEEDS = 4
_ATTENTION_DROPOUT = 0.1
_DEVIATION = 0.02


class Affine(nn.Module):
    """What MobileBERT has for a normalisation: a weight and a bias for each channel, and no mean or deviation."""

    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, tokens):
        return tokens * self.weight + self.bias


class Embedding(nn.Module):
    """Each token together with its two neighbours, its place, and the (only) segment."""

    def __init__(self, vocabulary, longest, embedded, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, embedded, padding_idx=0)
        self.positions = nn.Embedding(longest, width)
        self.segments = nn.Embedding(2, width)
        self.widen = nn.Linear(3 * embedded, width)
        self.norm = Affine(width)

    def forward(self, tokens):
        own = self.tokens(tokens)
        after, before = pad(own[:, 1:], (0, 0, 0, 1)), pad(own[:, :-1], (0, 0, 1, 0))
        found = self.widen(torch.cat((after, own, before), 2))
        return self.norm(found + self.positions(token_positions(tokens)) + self.segments.weight[0])


class Feed(nn.Module):
    """A small network on each token, added to what goes in."""

    def __init__(self, width, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.norm = Affine(width)

    def forward(self, tokens):
        return self.norm(self.body(tokens) + tokens)


class Layer(nn.Module):
    """Narrow, attend, four small networks, widen again; what goes in is added to what comes out."""

    def __init__(self, width, narrow):
        super().__init__()
        self.heads = Heads(narrow, _HEADS, _ATTENTION_DROPOUT, value_width=width)
        self.attended = nn.Linear(narrow, narrow)
        self.attended_norm = Affine(narrow)
        self.widen = nn.Linear(narrow, width)
        self.norm = Affine(width)
        self.narrow = nn.Sequential(nn.Linear(width, narrow), Affine(narrow))
        self.narrow_shared = nn.Sequential(nn.Linear(width, narrow), Affine(narrow))  # for query and key
        self.feeds = nn.Sequential(*(Feed(narrow, width) for _ in range(_FEEDS)))

    def forward(self, tokens):
        shared = self.narrow_shared(tokens)
        attended = self.attended(self.heads(shared, shared, tokens))
        found = self.feeds(self.attended_norm(attended + self.narrow(tokens)))
        return self.norm(self.widen(found) + tokens)


class Vocabulary(nn.Module):
    """A score for each word: the table of the embedding, used again, beside a table for the channels beyond it."""

    def __init__(self, table, width):
        super().__init__()
        words, embedded = table.shape
        self.table = table
        self.beyond = nn.Parameter(torch.empty(width - embedded, words).normal_(0, _DEVIATION))
        self.bias = nn.Parameter(torch.zeros(words))

    def forward(self, tokens):
        return tokens.matmul(torch.cat((self.table.t(), self.beyond), 0)) + self.bias


def _begin_small(layer):
    """As the article has it: nothing here normalises, and from torch's larger weights the loss is soon NaN."""
    if isinstance(layer, (nn.Linear, nn.Embedding)):
        nn.init.normal_(layer.weight, 0, _DEVIATION)
    if isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)


class MaskedLanguage(nn.Module):
    """For each place of a text (N, L) a score for each word of the vocabulary (N, L, V)."""

    def __init__(self, vocabulary, longest, embedded, width, narrow, layers):
        super().__init__()
        self.embedding = Embedding(vocabulary, longest, embedded, width)
        self.layers = nn.Sequential(*(Layer(width, narrow) for _ in range(layers)))
        self.transform = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width, eps=1e-12))
        self.vocabulary = Vocabulary(self.embedding.tokens.weight, width)
        self.apply(_begin_small)

    def forward(self, tokens):
        return self.vocabulary(self.transform(self.layers(self.embedding(tokens))))
