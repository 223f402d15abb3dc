"""The command line. click and rich are imported here and nowhere else."""

from undivided.cli.commands import main

__all__ = ["main"]
