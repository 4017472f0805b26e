"""`python -m scripts.site`: build the site into `site/`; `--serve` serves it, `properdocs` takes that builder.

`--no-notebooks` leaves notebooks unrun that have not been run yet.
"""

from __future__ import annotations

import sys

from scripts.site.build import build_all, serve
from scripts.site.notebooks import run_all
from scripts.site.page import SiteError


def main(arguments: list[str]) -> int:
    """Returns the builder's exit code; 1 when a page asks for something that is not there."""
    words = [one for one in arguments if one not in ("--serve", "--no-notebooks")]
    try:
        if "--no-notebooks" not in arguments:
            run_all()
        if "--serve" in arguments:
            return serve()
        done = build_all(builder=words[0] if words else "mkdocs")
    except SiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(done.stdout + done.stderr, end="", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
