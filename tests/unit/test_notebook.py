"""What the notebooks show: tables and tokens, as HTML and as text, with nothing of an answer read as markup."""

from __future__ import annotations

import pytest

from jumpforward.notebook import Table, Tokens
from shared_runtime.vocabulary import Vocabulary


def test_a_table_says_the_same_as_html_and_as_text() -> None:
    table = Table(["what", "how many"], [("a<b>", 12345), ("c", 1.25), ("d", True)])
    assert repr(table) == "what  how many\na<b>  12,345\nc     1.2\nd     True"
    html = table._repr_html_()
    assert "a&lt;b&gt;" in html
    assert "12,345" in html
    assert html.count('<th scope="col">') == 2


def test_a_dollar_is_no_formula_and_a_date_is_not_broken() -> None:
    """JupyterLab sets what stands between two dollars, such as `$defs` and `$ref`, unless a class says not to."""
    html = Table(["a"], [("#/$defs/node/$ref",), ("2025-03-03",)])._repr_html_()
    assert "mathjax_ignore" in html
    assert 'nowrap">2025-03-03' in html
    assert "mathjax_ignore" in Tokens(["$", "x", "$"])._repr_html_()


def test_a_token_is_text_and_never_markup() -> None:
    html = Tokens(["<script>", " \n", ""], ["sampled", "jumped", "sampled"], title="<i>")._repr_html_()
    assert "<script>" not in html
    assert "<i>" not in html
    assert "␣↵" in html
    assert 'title="jumped"' in html
    assert ">stop<" in html


def test_half_a_character_is_shown_as_such() -> None:
    vocabulary = Vocabulary((b"", "é".encode()[:1], b"a"), frozenset({0}), frozenset({0}), 3)
    assert repr(Tokens.of(vocabulary, [1, 2, 0])) == "�|a|stop"


def test_an_origin_for_each_token_or_for_none() -> None:
    with pytest.raises(ValueError, match="zip"):
        Tokens(["a", "b"], ["sampled"])._repr_html_()
