"""Programs that need no torch: a call of Python code, idling, cold epochs, and a small server for studies of load."""
