"""NVIDIA GPUs: the management library, and device files."""
