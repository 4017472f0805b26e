"""`jumpforward museum`: the catalogue as a list, one by one, and as JSON."""

from __future__ import annotations

import io
import json
import re

import jsonschema
import pytest

from jumpforward.cli import main
from jumpforward.museum import MuseumRow, all_rows, get_row
from jumpforward.result_json import schema_text

SCHEMA = json.loads(schema_text("museum"))
Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *words: str) -> tuple[int, str, str]:
    code = main(["museum", *words])
    done = capsys.readouterr()
    return code, done.out, done.err


def test_the_list_as_json_is_every_row_in_the_schema(capsys: Capture) -> None:
    code, out, err = printed(capsys, "list", "--json")
    rows = json.loads(out)
    jsonschema.validate(rows, SCHEMA)
    assert (code, err) == (0, "")
    assert [row["number"] for row in rows] == [row.number for row in all_rows()]


def test_a_row_as_json_is_the_one_of_the_list(capsys: Capture) -> None:
    _, listed, _ = printed(capsys, "list", "--json")
    for row in json.loads(listed):
        code, out, _ = printed(capsys, "show", str(row["number"]), "--json")
        assert (code, json.loads(out)) == (0, row)
    jsonschema.validate(row, SCHEMA)


def test_the_list_for_people_has_a_line_a_row_with_its_commit(
        capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = printed(capsys, "list")
    assert code == 0
    for row in all_rows():
        dates = sorted((one.date, one.commit) for one in row.found)
        mended = " ".join(dates[-1]) if dates else "never"
        assert re.search(rf"^ *{row.number} .*{re.escape(mended)} *$", out, re.MULTILINE), row.number
    assert f"{len(all_rows())} rows" in out


@pytest.mark.parametrize("row", all_rows(), ids=lambda row: f"row_{row.number:02}")
def test_a_row_for_people_says_everything(row: MuseumRow, capsys: Capture) -> None:
    code, out, _ = printed(capsys, "show", str(row.number))
    assert code == 0
    for text in (row.title, row.symptom, row.cause, row.scenario, row.wrong, row.right, row.invariant, row.see,
                 row.command, row.not_injectable):
        assert text in out
    for commit in (*row.found, *row.caused_by):
        assert f"{commit.commit} ({commit.date}" in out


def test_a_row_that_is_not_there_is_a_usage_error_that_names_those_that_are(capsys: Capture) -> None:
    code, out, err = printed(capsys, "show", "999")
    assert (code, out) == (2, "")
    assert err.startswith("error: museum: the museum has no row 999 (it has: 1, 2, 3, ")
    code, out, _ = printed(capsys, "show", "999", "--json")
    jsonschema.validate(json.loads(out), SCHEMA)
    assert code == 2


def test_no_row_number_is_a_usage_error(capsys: Capture) -> None:
    assert printed(capsys, "show")[0] == 2
    assert printed(capsys, "show", "twelve")[0] == 2


def test_a_terminal_without_unicode_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr("sys.stdout", out)
    assert main(["museum", "list"]) == 0
    out.seek(0)
    assert "never" in out.read()


def test_a_row_says_when_it_was_never_repaired(capsys: Capture) -> None:
    assert get_row(2).found == ()
    assert "never, while this code lived" in printed(capsys, "show", "2")[1]
