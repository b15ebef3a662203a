"""The kernel's view of traced trials: each section in the form of a paper's table or figure."""
