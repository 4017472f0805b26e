"""`python -m scripts.site`: build the site into `site/`; `--serve` serves it, `properdocs` takes that builder."""

from __future__ import annotations

import sys

from scripts.site.build import build, serve
from scripts.site.page import SiteError


def main(arguments: list[str]) -> int:
    """Returns the builder's exit code; 1 when a page asks for something that is not there."""
    try:
        if arguments == ["--serve"]:
            return serve()
        done = build(builder=arguments[0] if arguments else "mkdocs")
    except SiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(done.stdout + done.stderr, end="", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
