"""The child of `build_process`: started by path, so that it imports what the builds need and nothing else.

Its argument is a file of build functions, each from (job, the first job's result) to (what it is, value). Jobs come
pickled on stdin as (function name, job), answers go pickled to stdout; the end of stdin ends it.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
from typing import BinaryIO

MAX_MEMORY = 4 << 30


def limit_memory() -> None:
    """Let allocations fail past `MAX_MEMORY`, where the system can do that."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    except (ImportError, OSError, ValueError):
        return


def serve(path: str, jobs: BinaryIO, replies: BinaryIO) -> None:
    """Answer jobs until there are no more."""
    spec = importlib.util.spec_from_file_location("builds", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module at {path}")
    builds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builds)
    shared = None
    while True:
        try:
            name, job = pickle.load(jobs)
        except EOFError:
            return
        what, value = vars(builds)[name](job, shared)
        if what == "shared":
            shared, value = value, None
        pickle.dump((what, value), replies, pickle.HIGHEST_PROTOCOL)
        replies.flush()


if __name__ == "__main__":
    limit_memory()
    serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
