"""The built-in programs: training, fine-tuning, generation, inference, LoadGen."""
