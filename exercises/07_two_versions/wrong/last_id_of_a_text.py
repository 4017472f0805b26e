"""A dict from texts to one id each."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

right: Any = answer_of("07_two_versions")


class Shim(right.Shim):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def guide(self, regex: str, tokenizer: Any) -> Any:
        """The last id wins."""
        if not self.is_todays():
            return super().guide(regex, tokenizer)
        core, end = self.load("outlines_core"), tokenizer.eos_token_id
        texts = {tokenizer.convert_token_to_string(token): [token_id]
                 for token, token_id in tokenizer.vocabulary.items() if token not in tokenizer.special_tokens}
        return right.Today(core.Guide(core.Index(regex, core.Vocabulary(end, texts))), end)
