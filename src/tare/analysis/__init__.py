"""What it means. Values in, findings out: nothing here draws, prints or measures."""
