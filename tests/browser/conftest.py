"""A browser, and pages served from this machine alone."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE_MS = 150_000
"""A page that is slow to load on a loaded machine is not wrong."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window. Without one the test is skipped; in continuous integration that is a failure.

    No longer than a module: while playwright is open its event loop counts as running in this thread, and any other
    test that calls `asyncio.run` would fail.
    """
    path = os.environ.get("CHROMIUM") or next((found for name in NAMES if (found := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        reason = "needs playwright and Chromium (apt-get install chromium, or CHROMIUM=/path/to/it)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], str]]:
    """Serve a folder; returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(folder: Path) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@contextmanager
def silent_page(browser: Browser) -> Iterator[Page]:
    """A page that must not say an error, nor ask another host for anything, for as long as it is open."""
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    opened.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    opened.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: None if request.url.startswith(("http://127.0.0.1", "data:", "blob:"))
              else wrong.append(request.url))
    yield opened
    opened.close()
    assert wrong == []


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A silent page for one test."""
    with silent_page(browser) as opened:
        yield opened
