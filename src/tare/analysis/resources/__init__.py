"""What a run used: energy, the GPU, the parts of a step and what binds them."""
