"""Ledger files on disk: read under the schema, listed by checksum, verified."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from benchmarks.ledger import Ledger
from shared_runtime.errors import ConfigError

FOLDER = Path(__file__).with_name("results")
SUMS = "SHA256SUMS"
_SCHEMA = Path(__file__).with_name("ledger.schema.json")


def read_ledger(path: Path) -> Ledger:
    """A ledger file, checked against the schema.

    Raises:
        ConfigError: it cannot be read, or is none; names the place in it.
    """
    from jsonschema import ValidationError, validate

    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the ledger: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise ConfigError(f"this is no JSON: {error}", where=str(path)) from error
    try:
        validate(data, json.loads(_SCHEMA.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ConfigError(f"this is no ledger: {error.message[:200]}", where=f"{path}: {error.json_path}",
                          fix="run the bench again with --fresh") from error
    return Ledger.of(data)


def write_sums(folder: Path) -> Path:
    """List every ledger of a folder with its checksum, in the form that `sha256sum -c` reads."""
    path = folder / SUMS
    path.write_text("".join(f"{_digest(one)}  {one.name}\n" for one in sorted(folder.glob("*.json"))), encoding="utf-8")
    return path


def verify(folder: Path) -> list[str]:
    """What is wrong with a folder of ledgers: a checksum, a file not listed or missing, a fault in a file; [] is good.

    Raises:
        ConfigError: the folder has no list.
    """
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"there is no {SUMS}: {error.strerror}", where=str(folder),
                          fix="`jumpforward bench run` writes it") from error
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    there = {one.name: one for one in folder.glob("*.json")}
    faults = [f"{name}: listed, but not there" for name in sorted(listed.keys() - there.keys())]
    faults += [f"{name}: not in {SUMS}" for name in sorted(there.keys() - listed.keys())]
    for name in sorted(there.keys() & listed.keys()):
        if _digest(there[name]) != listed[name]:
            faults.append(f"{name}: its checksum is another one")
        try:
            ledger = read_ledger(there[name])
        except ConfigError as error:
            faults.append(str(error))
            continue
        faults += [f"{name}: {one}" for one in _contradictions(ledger)]
    return faults


def _contradictions(ledger: Ledger) -> list[str]:
    """Rows that cannot be right, whatever machine they come from."""
    keys = [one.key + f"/{one.dtype}/{one.graphs}" for one in ledger.measurements]
    found = [f"{key} stands there {keys.count(key)} times" for key in sorted(set(keys)) if keys.count(key) > 1]
    for one in ledger.measurements:
        ways = [one.counts.get(name, 0) for name in ("sampled", "jumped", "forced", "accepted")]
        if one.stage and sum(ways) != one.counts["tokens"]:
            found.append(f"{one.key}: {sum(ways)} tokens came somehow, {one.counts['tokens']} came out")
        if any(ratio.low > ratio.median or ratio.median > ratio.high for ratio in one.ratios.values()):
            found.append(f"{one.key}: a median outside of its interval")
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
