"""How good an answer's spelling is: measured, for any decoder, from its tokens alone.

Two questions. Are these the tokens that the model's tokenizer would have written the text with, as it did in all text
that the model has learnt from? And how probable are they to the model when nothing is masked?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared_runtime.errors import RequestError
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary

if TYPE_CHECKING:
    from shared_runtime.engine import Engine


@dataclass(frozen=True, slots=True)
class Spelling:
    """An answer's tokens beside those that its text is encoded to; tokens that spell nothing count for neither.

    Attributes:
        tokens: in the answer. encoded: in its text's own encoding. shared: in both, over the same bytes.
    """

    tokens: int
    encoded: int
    shared: int

    @property
    def canonical_share(self) -> float:
        """Share of the answer's tokens that its text's own encoding has, too, in the same place; 1 without tokens."""
        return self.shared / self.tokens if self.tokens else 1.0

    def __add__(self, other: Spelling) -> Spelling:
        """Both answers taken together."""
        return Spelling(self.tokens + other.tokens, self.encoded + other.encoded, self.shared + other.shared)


@dataclass(frozen=True, slots=True)
class Likelihood:
    """What a model, nothing masked, makes of an answer.

    Attributes:
        logprob: of all its tokens together, in nats. tokens: how many, a stop token at the end among them.
        bytes: that they spell.
    """

    logprob: float
    tokens: int
    bytes: int

    @property
    def nll_per_token(self) -> float:
        """Nats a token; depends on how finely the text is cut. 0 without tokens."""
        return -self.logprob / self.tokens if self.tokens else 0.0

    @property
    def logprob_per_byte(self) -> float:
        """Nats a byte, at most 0: compares answers of different tokens, and of different texts. 0 without bytes."""
        return self.logprob / self.bytes if self.bytes else 0.0

    def __add__(self, other: Likelihood) -> Likelihood:
        """Both answers taken together."""
        return Likelihood(self.logprob + other.logprob, self.tokens + other.tokens, self.bytes + other.bytes)


def spelling_of(tokenizer: Tokenizer, token_ids: Sequence[int]) -> Spelling:
    """How the tokens of an answer compare with the encoding of its text.

    A character that the answer ends inside is left out, with the tokens that spell it.

    Raises:
        RequestError: the bytes are no text, or hold one that no token spells: they have no encoding.
    """
    vocabulary = tokenizer.vocabulary
    spans = _spans(vocabulary, token_ids)
    spelled = vocabulary.decode(list(token_ids))
    try:
        text = spelled.decode()
    except UnicodeDecodeError as error:
        if error.end != len(spelled) or error.reason != "unexpected end of data":
            raise RequestError(f"byte {error.start} of the answer begins no character", where="token_ids") from None
        text = spelled[:error.start].decode()
        spans = [span for span in spans if span[1] <= error.start]
    encoded = _spans(vocabulary, tokenizer.spell(text))
    return Spelling(len(spans), len(encoded), len(set(spans) & set(encoded)))


def log_likelihood(engine: Engine, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> Likelihood:
    """Read prompt and answer in one go, and add up what the model expected of the answer's tokens.

    Args:
        engine: of any stage, with room for both and one token more; what it is doing goes on meanwhile.

    Raises:
        RequestError: the prompt is empty, or there is no room.
    """
    if not prompt_ids:
        raise RequestError("an answer is scored behind a prompt", where="prompt_ids", fix="give at least one token")
    name, = engine.add_request(prompt_ids=[*prompt_ids, *token_ids],
                               sampling=SamplingParams(max_new_tokens=1, prompt_logprobs=True))
    result = None
    while result is None:
        engine.step()
        result = next((event.result for event in engine.take_events([name]) if event.result is not None), None)
    if result.error is not None:
        raise result.error
    scores = result.prompt_logprobs[len(prompt_ids) - 1:]
    return Likelihood(sum(score.logprob for score in scores), len(scores),
                      len(engine.tokenizer.vocabulary.decode(list(token_ids))))


def _spans(vocabulary: Vocabulary, token_ids: Sequence[int]) -> list[tuple[int, int]]:
    """First byte and end of each token that spells something."""
    spans, at = [], 0
    for token_id in token_ids:
        end = at + len(vocabulary.token_bytes[token_id])
        if end > at:
            spans.append((at, end))
        at = end
    return spans
