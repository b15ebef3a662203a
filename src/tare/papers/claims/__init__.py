"""The papers' take-aways as hypotheses, each decided on the user's own records."""
