"""From a regex to masks and jumps, step by step: the sizes are those of the stages' own tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jumpforward.cli import main
from jumpforward.stepper.pipeline import Pipeline, pipeline_of
from jumpforward.stepper.widget import PipelineWidget
from shared_runtime.errors import ConstraintError, GrammarTimeoutError, UnsatisfiableConstraintError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def vocabulary(tiny_model: Path) -> Vocabulary:
    return Tokenizer.from_folder(tiny_model).vocabulary


def _sizes(pipeline: Pipeline) -> dict[str, dict[str, int]]:
    return {step.name: dict(step.sizes) for step in pipeline.steps}


def test_the_steps_of_a_small_pattern(vocabulary: Vocabulary) -> None:
    sizes = _sizes(pipeline_of("ab(cde)?", vocabulary))
    assert list(sizes) == ["parse", "NFA", "FSM", "minimal FSM", "byte automaton", "vocabulary trie", "token index",
                           "jump map"]
    assert sizes["FSM"]["states"] == sizes["minimal FSM"]["states"] == 6
    assert sizes["minimal FSM"]["chains"] == 2
    assert sizes["byte automaton"] == {"states": 6, "of them inside a character": 0}
    assert sizes["jump map"]["states with one way on"] == 4, "the two accepting states have none"


def test_characters_of_several_bytes_have_states_inside(vocabulary: Vocabulary) -> None:
    assert _sizes(pipeline_of("中", vocabulary))["byte automaton"] == {"states": 4, "of them inside a character": 2}


def test_the_mask_counts_are_those_of_brute_force(vocabulary: Vocabulary) -> None:
    step = next(step for step in pipeline_of("[ab]{1,2}", vocabulary).steps if step.name == "token index")
    allowed = {text: sum(spelled in (b"a", b"b", b"aa", b"ab", b"ba", b"bb")[:text] for spelled in
                         vocabulary.token_bytes) for text in (2, 6)}
    by_state = {row[0]: int(row[1].replace(",", "")) for row in step.rows[1:]}
    assert by_state["0"] == allowed[6]
    assert by_state["1"] == allowed[2] + len(vocabulary.stop_ids)


@pytest.mark.parametrize(("pattern", "error"), [("(", ConstraintError), ("[^\\s\\S]", UnsatisfiableConstraintError),
                                                ("(a|b)*a(a|b){18}", GrammarTimeoutError)])
def test_what_cannot_be_compiled_is_its_error(vocabulary: Vocabulary, pattern: str,
                                              error: type[Exception]) -> None:
    with pytest.raises(error):
        pipeline_of(pattern, vocabulary, GrammarLimits(max_states=2_000))


def test_a_notebook_shows_it_and_the_pattern_stays_text(vocabulary: Vocabulary) -> None:
    html = pipeline_of("<b>x{3}", vocabulary)._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;x{3}" in html
    assert "<svg" in html
    assert html.count("<h5>") == 8


def test_the_widget_compiles_what_is_typed_and_says_what_is_wrong_with_it(vocabulary: Vocabulary) -> None:
    widget = PipelineWidget("ab(cde)?", vocabulary)
    steps = pipeline_of("ab(cde)?", vocabulary).steps
    assert [(step["name"], step["sizes"]) for step in widget.steps] == [(step.name, step.sizes_text) for step in steps]
    assert "<svg" in widget.steps[3]["html"]
    widget.pattern = "("
    assert widget.steps == []
    assert "position 0" in widget.error
    widget.pattern = "<b>"
    assert widget.error == ""
    assert all("<b>" not in step["html"] for step in widget.steps)


def test_the_drawn_edges_are_told_in_words_too(vocabulary: Vocabulary) -> None:
    step = next(step for step in pipeline_of("ab(cde)?", vocabulary).steps if step.name == "minimal FSM")
    assert step.rows[1:] == [("0", "ab", "2", "1"), ("2", "cde", "5", "2")]


def test_the_command_prints_every_step(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["step", "--pipeline", "--model", str(tiny_model), "--choice", "yes", "--choice", "no"]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^(\d)\. ", shown, re.MULTILINE) == list("12345678")
    assert main(["step", "--pipeline", "--model", str(tiny_model), "--json-object"]) == 2
    assert "--regex or --choice" in capsys.readouterr().err
