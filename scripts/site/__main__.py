"""`python -m scripts.site`: write the builder's input, then build (or serve) the site."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.site.assemble import assemble
from scripts.site.page import ROOT, SiteError


def main(arguments: list[str]) -> int:
    """Build; `--serve` serves instead, `--builder NAME` takes another builder of the same configuration."""
    builder = arguments[arguments.index("--builder") + 1] if "--builder" in arguments else "mkdocs"
    try:
        assemble()
    except SiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    call = [str(Path(sys.executable).with_name(builder)), "serve" if "--serve" in arguments else "build"]
    call += ["--config-file", str(ROOT / "mkdocs.yml")]
    if "--serve" not in arguments:
        call += ["--strict", "--quiet"]
    return subprocess.run(call, cwd=ROOT, check=False, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
