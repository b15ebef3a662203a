"""One trial, done: whatever happens, the device is left as it was found and what was seen is kept."""
