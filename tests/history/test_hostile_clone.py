"""A clone is untrusted input: it is refused or survived, and nothing of it is run."""

from __future__ import annotations

from pathlib import Path

import git
import pytest

from history import clone as clone_module
from history import git_call
from history.clone import CONSTRAINED, Clone
from history.errors import HistoryError, NoCloneError
from tests.history.synthetic import Synthetic, build


@pytest.mark.parametrize("ref", ["--upload-pack=touch${IFS}pwned", "-h", "", "a\nb", "a\x1b[2Jb", "x" * 300, "\0"])
def test_what_is_no_ref_never_reaches_git(clone: Clone, ref: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clone_module, "ask_git", lambda *_: pytest.fail("git was asked"))
    with pytest.raises(HistoryError, match="is no ref"):
        clone.resolve(ref)


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b", "", "a\nb"])
def test_a_path_outside_is_refused(clone: Clone, path: str) -> None:
    for ask in (lambda: clone.text("HEAD", path), lambda: clone.line_counts("HEAD", path),
                lambda: clone.touching(path), lambda: clone.count("x", "HEAD", [path]),
                lambda: clone.diff("HEAD~1", "HEAD", path)):
        with pytest.raises(HistoryError, match="is no path inside"):
            ask()


def test_magic_in_a_path_is_a_name_like_any_other(clone: Clone) -> None:
    for path in (":(top)python", "*", ":!python"):
        assert clone.touching(path) == frozenset()


@pytest.fixture
def trapped(tmp_path: Path) -> tuple[Synthetic, Path]:
    """A repository whose configuration and attributes name a program that leaves a mark when it runs."""
    made = build(tmp_path / "sglang")
    mark = tmp_path / "mark"
    script = tmp_path / "trap"
    script.write_text(f"#!/bin/sh\necho ran >> {mark}\nexit 0\n")
    script.chmod(0o755)
    with made.repo.config_writer() as config:
        config.set_value("core", "fsmonitor", str(script))
        config.set_value("core", "hooksPath", str(tmp_path))
        config.set_value("core", "pager", str(script))
        config.set_value("core", "sshCommand", str(script))
        config.set_value("diff", "external", str(script))
        config.set_value('diff "evil"', "command", str(script))
        config.set_value('diff "evil"', "textconv", str(script))
        config.set_value("gpg", "program", str(script))
        config.set_value("log", "showSignature", "true")
        config.set_value("pager", "log", str(script))
        config.set_value("diff", "noprefix", "true")
    (made.path / ".git" / "info").mkdir(exist_ok=True)
    (made.path / ".git" / "info" / "attributes").write_text("* diff=evil\n")
    return made, mark


def test_nothing_that_the_repository_configures_is_run(trapped: tuple[Synthetic, Path]) -> None:
    made, mark = trapped
    with Clone(made.path) as clone:
        assert clone.facts([row.hash for row in made.rows]).keys() == {row.hash for row in made.rows}
        assert "-three" in clone.diff("HEAD~1", "HEAD")
        assert clone.text("HEAD~4", f"{CONSTRAINED}/fsm.py")
        assert clone.changes("HEAD")
        assert clone.count("jump_forward", "HEAD~1", ["python"])
        assert clone.touching("python")
        assert clone.months()
        assert clone.resolve("v0.1.12")
    made.repo.close()
    assert not mark.exists()


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = build(tmp_path / "sglang")
    made.commit("huge", "huge", "2026-01-01", {f"{CONSTRAINED}/huge.py": "x" * 5_000})
    monkeypatch.setattr(clone_module, "MOST_FILE_BYTES", 4_000)
    with Clone(made.path) as clone:
        with pytest.raises(HistoryError, match="too large to show"):
            clone.text("HEAD", f"{CONSTRAINED}/huge.py")
        assert clone.text("HEAD", f"{CONSTRAINED}/fsm_cache.py") == "cache\n"
    made.repo.close()


def test_output_without_end_is_cut_off(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_call, "MOST_BYTES", 10)
    with pytest.raises(HistoryError, match="prints more than"):
        clone.diff("HEAD~1", "HEAD")


def test_odd_bytes_are_survived(tmp_path: Path) -> None:
    made = build(tmp_path / "sglang")
    folder = made.path / CONSTRAINED
    (folder / "latin.py").write_bytes("caf\xe9 jump_forward\n".encode("latin-1"))
    (folder / "binary.py").write_bytes(b"\0\1\2" * 100)
    (folder / "tab\tand\nnewline.py").write_text("jump_forward\n")
    (folder / "\x1b[31mred.py").write_text("jump_forward\n")
    made.commit("odd", "odd \x1b[31m names", "2026-01-01", {})
    with Clone(made.path) as clone:
        assert clone.text("HEAD", f"{CONSTRAINED}/latin.py") == "caf\ufffd jump_forward\n"
        counts = clone.line_counts("HEAD")
        assert counts[f"{CONSTRAINED}/binary.py"] is None
        assert counts[f"{CONSTRAINED}/tab\tand\nnewline.py"] == 1
        assert clone.count("jump_forward", "HEAD", [CONSTRAINED])[f"{CONSTRAINED}/tab\tand\nnewline.py"] == 1
        assert clone.changes("HEAD")
        assert len(clone.facts([made.by_name["odd"]])) == 1
    made.repo.close()


def test_a_broken_repository_is_an_error_of_one_line(synthetic: Synthetic, tmp_path: Path) -> None:
    synthetic.repo.clone(tmp_path / "broken").close()
    (tmp_path / "broken" / ".git" / "HEAD").write_text("nonsense\n")
    with pytest.raises((NoCloneError, HistoryError)) as caught, Clone(tmp_path / "broken") as clone:
        clone.resolve("HEAD")
    assert "\n" not in str(caught.value)


def test_a_missing_object_is_an_error_and_fetches_nothing(synthetic: Synthetic, tmp_path: Path) -> None:
    """A clone without blobs (`--filter=blob:none`) fetches what is read; this reader must not go out."""
    with synthetic.repo.config_writer() as config:
        config.set_value("uploadpack", "allowFilter", "true")
    partial = git.Repo.clone_from(f"file://{synthetic.path}", tmp_path / "partial", filter="blob:none", bare=True)
    partial.close()
    with Clone(tmp_path / "partial") as clone, pytest.raises(HistoryError, match="clone"):
        clone.diff("HEAD~1", "HEAD")
