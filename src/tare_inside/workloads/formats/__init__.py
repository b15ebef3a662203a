"""How data sets are made, and what data sets and applications are read with: pictures, tokens, speech."""
