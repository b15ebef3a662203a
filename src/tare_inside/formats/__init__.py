"""What data sets and applications are read with: pictures, tokens, speech, large files."""
