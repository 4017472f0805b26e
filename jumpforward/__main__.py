"""Where the program starts: nothing is imported before Ctrl-C is looked after.

`jumpforward` and `python -m jumpforward` are the same.
"""

import sys


def start() -> int:
    """Run the command line; 130 when Ctrl-C ends it, even while it is still being loaded."""
    try:
        from jumpforward.cli import main

        return main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(start())
