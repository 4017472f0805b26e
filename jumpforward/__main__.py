"""`python -m jumpforward` is the command line too."""

import sys

from jumpforward.cli import main

if __name__ == "__main__":
    sys.exit(main())
