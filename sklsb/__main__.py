"""The command line: ``python -m sklsb --help``."""

import sys

from sklsb._commands import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
