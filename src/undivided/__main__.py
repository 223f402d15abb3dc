"""`python -m undivided` is the command `undivided`."""

from undivided.cli import main

main()
