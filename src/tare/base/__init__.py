"""What everything stands on: the door to the machine, errors, text and units, files, locks."""
