"""Where trials run: here, one after another."""
