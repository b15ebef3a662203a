"""GPUs: NVIDIA's management library and device files, and cards of others."""
