"""`python -m tare.cli`: the same as `tare`, where the script is not on the path."""

from tare.cli import main

main()
