"""Undoing what a trial changed: the journal, knobs, restoration, the guardian, cleaning."""
