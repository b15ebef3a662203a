"""BERT (Devlin et al. 2018): an encoder of tokens, and the head that finds an answer in a text."""

from torch import nn

from tare_inside.layers.attention import Heads, score_mask
from tare_inside.layers.token_positions import token_positions

_DROPOUT = 0.1
_EPS = 1e-12


class Embedding(nn.Module):
    """Tokens, their places and the segments that they are in, as one vector for each token."""

    def __init__(self, vocabulary, longest, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=_EPS)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, tokens, segments):
        places = self.positions(token_positions(tokens))
        return self.dropout(self.norm(self.tokens(tokens) + self.segments(segments) + places))


class Layer(nn.Module):
    """Attention, then a small network on each token; what goes in is added to what comes out, and normalised."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = Heads(width, heads, _DROPOUT)
        self.attended = nn.Sequential(nn.Linear(width, width), nn.Dropout(_DROPOUT))
        self.attended_norm = nn.LayerNorm(width, eps=_EPS)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(_DROPOUT)
        )
        self.norm = nn.LayerNorm(width, eps=_EPS)

    def forward(self, tokens, mask):
        tokens = self.attended_norm(self.attended(self.heads(tokens, tokens, tokens, mask)) + tokens)
        return self.norm(self.feed(tokens) + tokens)


class QuestionAnswering(nn.Module):
    """For each token how likely the answer starts there, and how likely it ends there: two tensors (N, L)."""

    def __init__(self, vocabulary, longest, width, heads, layers):
        super().__init__()
        self.embedding = Embedding(vocabulary, longest, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.span = nn.Linear(width, 2)

    def forward(self, tokens, segments=None, mask=None):
        """Tokens (N, L); segments, 0 for the question and 1 for the text; mask, true where there is a token."""
        found = self.embedding(tokens, tokens.new_zeros(tokens.shape) if segments is None else segments)
        added = score_mask(mask)
        for layer in self.layers:
            found = layer(found, added)
        start, end = self.span(found).unbind(-1)
        return start, end
