"""Files that are used only if they are, to the byte, what was written: for what can be made again.

A file is the SHA-256 of its body as a line of hex digits, a head, and a payload. The head names everything that the
payload depends on, so a file of another version, or one that was given another name, is not read further.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path


def read_verified(path: Path, head: bytes, most: int) -> bytes | None:
    """The payload of a file, None when there is no such file, or it is damaged, or its head is another.

    Args:
        head: how the body must begin. most: bytes of payload; a longer file is not read to its end.
    """
    try:
        if not path.is_file():  # a pipe would be waited for
            return None
        with path.open("rb") as file:
            checksum, body = file.read(65), file.read(len(head) + most + 1)
    except OSError:
        return None
    if checksum != _checksum(body) or not body.startswith(head) or len(body) > len(head) + most:
        return None
    return body[len(head):]


def write_verified(path: Path, head: bytes, payload: bytes) -> None:
    """Put a file in place at once or not at all; readers see the old one or the new one.

    Without room or permission nothing is written and nothing is said: what the file would have saved is time.
    """
    body = head + payload
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_checksum(body) + body)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink()


def version_of(*folders: Path) -> str:
    """A hash of all sources in `folders`: for a head, so that nobody has to remember to raise a number."""
    sources = sorted(path for folder in folders for path in folder.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode() + b"\n"
