"""The workflow that publishes the site does what the README says builds it, and may no more than it needs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from scripts.site.build import SITE
from scripts.site.page import ROOT

FLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/pages.yml").read_text(encoding="utf-8"))
STEPS = [step for job in FLOW["jobs"].values() for step in job["steps"]]


def test_it_builds_by_the_readmes_command_and_publishes_the_folder_that_this_fills() -> None:
    assert [step["run"] for step in STEPS if "run" in step] == ["make docs"]
    assert "`make docs`" in (ROOT / "README.md").read_text(encoding="utf-8")
    [upload] = [step for step in STEPS if step.get("uses", "").startswith("actions/upload-pages-artifact@")]
    assert ROOT / upload["with"]["path"] == SITE


def test_the_site_is_told_its_address() -> None:
    [build] = [step for step in STEPS if "run" in step]
    [(name, address)] = build["env"].items()
    assert f"!ENV [{name}, " in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    [said] = re.findall(r"steps\.(\w+)\.outputs\.base_url", address)
    assert said in {step.get("id") for step in FLOW["jobs"]["build"]["steps"]}


@pytest.mark.parametrize("step", [step for step in STEPS if "uses" in step], ids=lambda step: step["uses"])
def test_every_action_has_a_version(step: dict[str, Any]) -> None:
    assert re.fullmatch(r"actions/[\w-]+@v\d+(\.\d+)*", step["uses"])


def test_only_the_job_that_publishes_may_write() -> None:
    rights = {name: job["permissions"] for name, job in FLOW["jobs"].items()} | {"": FLOW["permissions"]}
    assert {name for name, found in rights.items() if "write" in found.values()} == {"publish"}
    assert FLOW["jobs"]["publish"]["needs"] == "build"
