"""The platforms, each in the file of its name."""
