"""Makes synthetic data sets on disk, and says whether one is whole."""
