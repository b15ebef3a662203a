"""Sensors of a board, and meters beside it."""
