"""Which configuration to choose: the front, predictions, recommendations."""
