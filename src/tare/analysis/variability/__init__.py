"""How much a figure varies, and where that comes from."""
