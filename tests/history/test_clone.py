"""Reading a clone of the shape of SGLang's."""

from __future__ import annotations

from pathlib import Path

import git
import pytest

from history.clone import CONSTRAINED, Clone, open_clone
from history.errors import HistoryError, NoCloneError
from history.figures import folder_over_time
from history.layers import by_layer, touched
from history.timeline import CitedCommit, TimelineRow
from history.verification import tally, verify
from tests.history.synthetic import MANAGERS, Synthetic


def test_a_ref_is_a_hash_a_branch_or_what_git_makes_of_it(clone: Clone, synthetic: Synthetic) -> None:
    last = synthetic.by_name["removal"]
    for ref in (last, last[:10], "main", "HEAD"):
        assert clone.resolve(ref) == last
    assert clone.resolve("HEAD~4") == synthetic.by_name["initial"]


def test_a_version_without_a_tag_is_the_commit_that_wrote_it(clone: Clone, synthetic: Synthetic) -> None:
    assert clone.resolve("v0.1.12") == synthetic.by_name["bump"]
    assert clone.resolve("0.1.12") == synthetic.by_name["bump"]
    assert clone.resolve("v0.1.120") == synthetic.by_name["later bump"]


def test_a_tag_wins_over_the_bump(synthetic: Synthetic) -> None:
    tag = synthetic.repo.create_tag("v0.1.5", ref=synthetic.by_name["jump"])
    try:
        with Clone(synthetic.path) as clone:
            assert clone.resolve("v0.1.5") == synthetic.by_name["jump"]
    finally:
        synthetic.repo.delete_tag(tag)
    with Clone(synthetic.path) as clone:
        assert clone.resolve("v0.1.5") == synthetic.by_name["initial"]


@pytest.mark.parametrize("ref", ["nosuch", "v9.9.9", "0000000000", "HEAD:python", "HEAD^{tree}"])
def test_an_unknown_ref_is_named(clone: Clone, ref: str) -> None:
    with pytest.raises(HistoryError, match="has no commit"):
        clone.resolve(ref)


def test_a_folder_at_a_commit(clone: Clone) -> None:
    assert clone.line_counts("HEAD~4") == {f"{CONSTRAINED}/fsm.py": 3, f"{CONSTRAINED}/fsm_cache.py": 1}
    assert clone.line_counts("HEAD") == {f"{CONSTRAINED}/fsm_cache.py": 1, f"{CONSTRAINED}/jump_forward.py": 3}
    assert clone.line_counts("HEAD", "no/such/folder") == {}


def test_a_file_at_a_commit(clone: Clone) -> None:
    assert clone.text("HEAD~4", f"{CONSTRAINED}/fsm.py") == "one\ntwo\nthree\n"
    assert clone.text("HEAD", f"{CONSTRAINED}/jump_forward.py").endswith("# é\n")
    for path in (f"{CONSTRAINED}/fsm.py", CONSTRAINED, "nosuch"):
        with pytest.raises(HistoryError, match="has no file"):
            clone.text("HEAD", path)


def test_counting_a_word_counts_lines(clone: Clone) -> None:
    counts = clone.count("jump_forward", "HEAD~1", ["python"])
    assert counts == {f"{CONSTRAINED}/jump_forward.py": 2, f"{MANAGERS}/scheduler.py": 3}
    assert clone.count("jump_forward", "HEAD", [MANAGERS]) == {}
    assert clone.count("-e", "HEAD", ["python"]) == {}
    assert clone.count("jump.forward", "HEAD", ["python"]) == {}, "a word, not a pattern"


def test_what_a_commit_changed(clone: Clone, synthetic: Synthetic) -> None:
    changes = {change.path: (change.added, change.deleted) for change in clone.changes(synthetic.by_name["removal"])}
    assert changes == {f"{CONSTRAINED}/fsm.py": (0, 3), f"{MANAGERS}/scheduler.py": (1, 3)}
    assert {change.path for change in clone.changes("HEAD", MANAGERS)} == {f"{MANAGERS}/scheduler.py"}
    assert sum(change.added or 0 for change in clone.changes(synthetic.by_name["initial"])) == 6
    assert "-three" in clone.diff("HEAD~1", "HEAD")
    assert clone.diff("HEAD", "HEAD") == ""


def test_who_touched_a_path(clone: Clone, synthetic: Synthetic) -> None:
    named = synthetic.by_name
    assert clone.touching(MANAGERS) == {named["jump"], named["removal"]}
    assert clone.touching("nosuch") == frozenset()


def test_layers_and_growth(clone: Clone, synthetic: Synthetic) -> None:
    found = touched(clone, [*synthetic.rows, _row("f" * 40)])
    assert [one.layers for one in found if one.row.title == "fast regex decode"] == [{"constrained": 1, "managers": 1}]
    assert len(found) == len(synthetic.rows), "a commit that the clone lacks is left out"
    assert by_layer(clone.changes("HEAD~4")) == {"constrained": 2, "other": 1}
    assert [(size.month, size.lines, size.files) for size in folder_over_time(clone)] == [
        ("2024-01", 7, 3), ("2025-03", 4, 2)]


def _row(commit: str, *, like: TimelineRow | None = None, insertions: int = 1, date: str = "2024-01-01") -> TimelineRow:
    if like is None:
        return TimelineRow(date, commit, None, "nothing", 1, "fix", 1, insertions, 0)
    return TimelineRow(date, commit, like.pr, like.title, like.stage, like.kind, like.files_changed, insertions,
                       like.deletions)


def test_a_true_timeline_is_confirmed(clone: Clone, synthetic: Synthetic) -> None:
    checked = verify(clone, synthetic.rows)
    assert tally(checked) == {"confirmed": 5, "differs": 0, "absent": 0}


def test_each_untruth_is_found(clone: Clone, synthetic: Synthetic) -> None:
    first, second, *_ = synthetic.rows
    wrong = [_row(first.hash, like=first, insertions=first.insertions + 1, date=first.date),
             _row(second.hash, like=second, insertions=second.insertions, date="2024-01-24"), _row("ab" * 20)]
    cited = [CitedCommit(first.hash, first.date, first.title, "sgl-project/sglang", True),
             CitedCommit("cd" * 20, "2024-01-01", "elsewhere", "other/repo", False)]
    checked = verify(clone, wrong, cited)
    assert [one.verdict for one in checked] == ["differs", "differs", "absent", "confirmed"]
    assert [(one.fact, one.ours, one.clones) for one in checked[0].differences] == [
        ("insertions", str(first.insertions + 1), str(first.insertions))]
    assert [one.fact for one in checked[1].differences] == ["date"]


def test_a_bare_clone_reads_the_same(synthetic: Synthetic, tmp_path: Path) -> None:
    synthetic.repo.clone(tmp_path / "bare.git", bare=True).close()
    with Clone(synthetic.path) as whole, Clone(tmp_path / "bare.git") as bare:
        assert bare.line_counts("v0.1.12") == whole.line_counts("v0.1.12")
        assert bare.count("jump_forward", "HEAD~1", ["python"]) == whole.count("jump_forward", "HEAD~1", ["python"])


def test_no_clone_is_an_error_that_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoCloneError, match="git clone https"):
        open_clone(None)
    for wrong in (tmp_path, tmp_path / "nosuch"):
        with pytest.raises(NoCloneError, match="git clone https"):
            open_clone(wrong)
    monkeypatch.setenv("SGLANG_REPO", str(tmp_path / "nosuch"))
    with pytest.raises(NoCloneError, match="no such folder"):
        open_clone(None)


def test_a_folder_inside_a_clone_is_not_the_clone(synthetic: Synthetic) -> None:
    """Else a typing error reads whatever repository the current folder happens to be in."""
    with pytest.raises(NoCloneError):
        Clone(synthetic.path / "python")


def test_another_repository_in_the_environment_is_not_read(synthetic: Synthetic, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    git.Repo.init(tmp_path / "other").close()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    with Clone(synthetic.path) as clone:
        assert clone.resolve("HEAD") == synthetic.by_name["removal"]


def test_an_empty_repository_has_no_head(tmp_path: Path) -> None:
    git.Repo.init(tmp_path / "empty").close()
    with Clone(tmp_path / "empty") as clone, pytest.raises(HistoryError, match="has no commit 'HEAD'"):
        clone.resolve("HEAD")
