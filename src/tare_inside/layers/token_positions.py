"""Where in its text each token stands."""

import torch


def token_positions(tokens):
    """0, 1, 2, ... for tokens (N, L), as one row that goes for all of them."""
    return torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
