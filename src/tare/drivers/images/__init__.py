"""Images with this device's own software."""
