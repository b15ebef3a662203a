"""A recurrent transducer from speech to letters (Graves 2012), with the shape that MLPerf gave it."""

import torch
from torch import nn
from torch.nn.functional import pad

_DROPOUT = 0.32


class Transducer(nn.Module):
    """Encoder, prediction network and joint network, each to be called by itself when decoding.

    The last of the classes is the blank; it is never an input of the prediction network.
    """

    def __init__(self, features, encoded, predicted, joint, classes):
        super().__init__()
        self.blank = classes - 1
        self.before = nn.LSTM(features, encoded, 2, batch_first=True, dropout=_DROPOUT)
        self.after = nn.LSTM(2 * encoded, encoded, 3, batch_first=True, dropout=_DROPOUT)
        self.embedding = nn.Embedding(classes - 1, predicted)
        self.prediction = nn.LSTM(predicted, predicted, 2, batch_first=True, dropout=_DROPOUT)
        self.joint = nn.Sequential(
            nn.Linear(encoded + predicted, joint), nn.ReLU(), nn.Dropout(_DROPOUT), nn.Linear(joint, classes)
        )

    def encode(self, features):
        """Features (N, T, F) as (N, T / 2, E): after two layers, each two frames in a row become one."""
        frames, _ = self.before(features)
        if frames.shape[1] % 2:
            frames = pad(frames, (0, 0, 0, 1))
        found, _ = self.after(frames.reshape(frames.shape[0], frames.shape[1] // 2, -1))
        return found

    def start(self, count):
        """What the prediction network says before the first letter, for so many texts: (N, 1, P), and its state."""
        nothing = self.embedding.weight.new_zeros(count, 1, self.embedding.embedding_dim)
        return self.prediction(nothing)

    def predict(self, letters, state=None):
        """What it says after these letters (N, U), going on from a state: (N, U, P), and the state after them."""
        return self.prediction(self.embedding(letters), state)

    def join(self, encoded, predicted):
        """Scores (N, T, U, classes) for each frame of (N, T, E) with each place in the text of (N, U, P)."""
        shape = (encoded.shape[0], encoded.shape[1], predicted.shape[1], -1)
        sides = (encoded.unsqueeze(2).expand(*shape), predicted.unsqueeze(1).expand(*shape))
        return self.joint(torch.cat(sides, 3))

    def forward(self, features, letters):
        """The scores of every alignment of the letters (N, U) to the speech: (N, T / 2, U + 1, classes)."""
        first, state = self.start(features.shape[0])
        later, _ = self.predict(letters, state)
        return self.join(self.encode(features), torch.cat((first, later), 1))
