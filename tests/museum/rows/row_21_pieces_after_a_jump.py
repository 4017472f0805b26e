"""Row 21: the detokenizer goes on with its own offsets after a stage has rewritten the ids."""

from __future__ import annotations

from collections.abc import Sequence

from shared_runtime import request_factory
from shared_runtime.detokenizer import IncrementalDetokenizer
from shared_runtime.vocabulary import Vocabulary
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask, preferring, stream

DetokenizerClass = type[IncrementalDetokenizer]


class OffsetsPerRequest(IncrementalDetokenizer):
    """Specimen of `IncrementalDetokenizer`: what was sent is a count of tokens, and a rewrite leaves it."""

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str] = ()) -> None:
        super().__init__(vocabulary, stop)
        self._taken: list[int] = []

    def push(self, token_id: int) -> str:
        """The text of the token."""
        self._taken.append(token_id)
        return super().push(token_id)

    def rebuild(self, token_ids: Sequence[int]) -> None:
        """Only the tokens behind the old count are new."""
        for token_id in list(token_ids)[len(self._taken):]:
            self._taken.append(token_id)
            self._take(self._spelled(token_id))


def the_pieces_are_the_text(detokenizer_class: DetokenizerClass, bench: Bench) -> None:
    """Three tokens, a rewrite into two that spell more, one token more: the pieces join to the text of the ids."""
    encode = bench.tokenizer.encode
    letters, joined = [encode(letter)[0] for letter in "aba"], [*encode("ab"), *encode("abc")]
    detokenizer = detokenizer_class(bench.tokenizer.vocabulary)
    pieces = [detokenizer.push(token_id) for token_id in letters]
    detokenizer.rebuild(joined)
    pieces += [detokenizer.push(encode("d")[0]), detokenizer.flush()]
    hold("".join(pieces) == "ababcd", f"the streamed pieces are {''.join(pieces)!r}, the text is 'ababcd'")


def scenario(bench: Bench) -> None:
    """A streamed answer whose letters become one token in a jump."""
    engine = bench.engine(2)
    result, pieces = stream(engine, ask("name: true", logit_bias=preferring(engine, "n")))
    assert result.counts["jumped"] > 0
    hold("".join(pieces) == bench.tokenizer.decode(result.token_ids[:-1]),
         f"the streamed pieces are {''.join(pieces)!r}, the text is 'name: true'")


EXHIBIT: Exhibit[DetokenizerClass] = Exhibit(
    21, OffsetsPerRequest, {"runtime": IncrementalDetokenizer}, the_pieces_are_the_text, "the streamed pieces are",
    Injection(request_factory, "IncrementalDetokenizer", OffsetsPerRequest, scenario,
              "the streamed pieces are 'n: true'"))
