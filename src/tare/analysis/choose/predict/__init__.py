"""Time, power and energy of modes that were not measured, from a few that were."""
