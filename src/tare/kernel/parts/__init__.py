"""The parts of the kernel's view, by kind."""
