"""Blocks of which the networks in models/ are built, one kind a file; these files import torch, models/ do not."""
