"""What a verdict rests on beside its interval: hidden costs, unlike work, marked trials, interactions, the gate."""
