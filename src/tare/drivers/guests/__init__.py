"""Virtual machines: how one is booted, the line to its agent, and the place inside."""
