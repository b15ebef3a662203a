"""A language model of words: an embedding, LSTM layers, a score for each word."""

from torch import nn

_DROPOUT = 0.5


class WordLstm(nn.Module):
    """For each place of a text (N, L) a score for each word that may come next (N, L, V)."""

    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.embedding = nn.Sequential(nn.Embedding(vocabulary, width), nn.Dropout(_DROPOUT))
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=_DROPOUT)
        self.words = nn.Sequential(nn.Dropout(_DROPOUT), nn.Linear(width, vocabulary))

    def forward(self, tokens):
        found, _ = self.lstm(self.embedding(tokens))
        return self.words(found)
