"""Row 8: stop strings are searched in what was sampled since the last jump."""

from __future__ import annotations

from collections.abc import Sequence

from shared_runtime import request_factory
from shared_runtime.detokenizer import IncrementalDetokenizer
from shared_runtime.stop_strings import StopSearch
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask

DetokenizerClass = type[IncrementalDetokenizer]


class SearchesTheTail(IncrementalDetokenizer):
    """Specimen of `IncrementalDetokenizer`: a rewrite takes its text in unsearched, and the search begins behind it."""

    def rebuild(self, token_ids: Sequence[int]) -> None:
        """Go on behind `token_ids`."""
        stop, self._stop = self._stop, ()
        super().rebuild(token_ids)
        self._stop, self._search = stop, StopSearch(stop)


def a_stop_string_is_found_wherever_it_came_from(detokenizer_class: DetokenizerClass, bench: Bench) -> None:
    """The stop string "age" in the text of a jump, and across its border."""
    encode = bench.tokenizer.encode
    for sampled, text in (('"Bo', '"Bo", "age": '), ('"Bo", "a', '"Bo", "age": ')):
        detokenizer = detokenizer_class(bench.tokenizer.vocabulary, ["age"])
        for token_id in encode(sampled):
            detokenizer.push(token_id)
        detokenizer.rebuild(encode(text))
        hold(detokenizer.matched_stop == "age", f"the stop string in {text!r} was not found")


def scenario(bench: Bench) -> None:
    """The same in stage 2."""
    result = bench.run(bench.engine(2), [ask('"[a-z]{2}", "age": [0-9]{2}', stop=("age",))])[0]
    hold(result.finish_reason == "stop" and result.matched == "age", f"the stop string was ignored: {result.text!r}")


EXHIBIT: Exhibit[DetokenizerClass] = Exhibit(
    8, SearchesTheTail, {"runtime": IncrementalDetokenizer}, a_stop_string_is_found_wherever_it_came_from,
    "was not found", Injection(request_factory, "IncrementalDetokenizer", SearchesTheTail, scenario, "was ignored"))
