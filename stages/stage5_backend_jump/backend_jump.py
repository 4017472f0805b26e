"""Jump-forward given back by the backend, without touching the scheduler. Ours: SGLang has nothing like it.

Upstream took jump-forward out of its scheduler (935cda944b, #4032) and kept three methods that nothing calls. The
libraries can still say what text is forced. Here that text goes two ways, both through the ordinary decode step:

`draft`: its tokens are offered as drafts, and one pass verifies them under the mask. What the masked model would not
have chosen is not taken, so every token is that of plain decoding; passes are saved, and nothing else changes.

`force`: its tokens are appended without being sampled, and the next pass reads them beside the newest one. That changes
the text, to one spelled as the model's tokenizer spells. What was emitted before is never touched; what could still
become part of a longer token is held back (`ForcedText.write`), and `force+draft` offers that tail as a draft.

Drafts by prompt lookup (`--spec ngram`) go behind the forced text, or where there is none; free requests have no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from shared_runtime.errors import ConstraintError
from shared_runtime.execution.draft_source import DraftBook, DraftLength
from shared_runtime.execution.forced_text import CONTEXT_TOKENS, ForcedText
from shared_runtime.execution.ngram import NGramDrafts
from shared_runtime.policy import Proposal, StageContext
from shared_runtime.request import Request

from .base_grammar_backend import BaseGrammarObject


class BackendJump:
    """Makes the proposals of an engine's requests. It asks a grammar what is forced, and moves it over what it appends.

    Args:
        context: `options.backend_jump` and `options.spec` say what is proposed at all.
    """

    def __init__(self, context: StageContext) -> None:
        modes = context.options.backend_jump.split("+")
        self._forces, self._drafts = "force" in modes, "draft" in modes
        self._text = ForcedText(context.tokenizer)
        self._ngrams = NGramDrafts() if context.options.spec == "ngram" else None
        self._book = DraftBook({"grammar": DraftLength(longest=64)})

    @property
    def active(self) -> bool:
        """Whether anything is ever proposed."""
        return self._forces or self._drafts or self._ngrams is not None

    def propose(self, req: Request, grammar: BaseGrammarObject | None, room: int) -> Proposal:
        """What to feed behind the newest token of `req`.

        Args:
            req: free, or constrained by `grammar`, which stands behind all of its output and has not ended. It is
                moved over what is forced, and stands before what is drafted.
            room: most tokens, at least 1.
        """
        self._book.open(req)
        forced: tuple[int, ...] = ()
        draft: tuple[int, ...] = ()
        whole = True
        if grammar is not None:
            forced = self._written(req, grammar, room)
        room = max(0, room - len(forced) - 1)  # behind a draft one more token is sampled
        if grammar is not None and self._drafts:
            tail = self._followed(req, grammar, forced, self._run(req, grammar, forced)[:room])
            draft = self._book.take(req, "grammar", tail, room)
            whole = len(draft) == len(tail)
        if self._ngrams is not None and (whole or not draft):
            found = (*draft, *self._ngrams.draft(req, room - len(draft), ahead=(*forced, *draft)))
            if grammar is not None:
                found = self._followed(req, grammar, forced, found)
            draft += self._book.take(req, self._ngrams.name, found[len(draft):], room - len(draft))
        return Proposal(forced, draft, source="backend")

    def forget(self, req: Request) -> None:
        """The request has ended. Idempotent."""
        self._book.forget(req)
        if self._ngrams is not None:
            self._ngrams.forget(req)

    def _run(self, req: Request, grammar: BaseGrammarObject, ahead: Sequence[int]) -> tuple[int, ...]:
        """The tokens of the text that is forced behind the output and `ahead`, up to one the request would stop at."""
        before = [*req.prompt_ids[-CONTEXT_TOKENS:], *req.output_ids[-CONTEXT_TOKENS:], *ahead]
        ids = self._text.spell(before, grammar.forced_bytes())
        return tuple(takewhile(lambda token_id: token_id not in req.sampling.stop_token_ids, ids))

    def _written(self, req: Request, grammar: BaseGrammarObject, room: int,
                 ahead: tuple[int, ...] = ()) -> tuple[int, ...]:
        """In the modes that force: what can be written for good, at most `room`; the grammar is moved over it."""
        written: tuple[int, ...] = ()
        while self._forces and len(written) < room:
            run = self._run(req, grammar, (*ahead, *written))
            count = self._text.write(grammar, run, room - len(written))
            if count == 0:
                break
            written += run[:count]
        return written

    def _followed(self, req: Request, grammar: BaseGrammarObject, ahead: tuple[int, ...],
                  ids: tuple[int, ...]) -> tuple[int, ...]:
        """The leading `ids` that may be drafted behind `ahead`: tokens that the grammar takes.

        Where text is forced, a draft ends before the token that leads to it: behind a draft one more token is sampled,
        and that one must not be. So in every mode, drafts change no token.
        """
        count = 0
        try:
            for token_id in ids:
                grammar.accept_token(token_id)
                count += 1
                if self._forces:
                    written = self._written(req, grammar, ahead=(*ahead, *ids[:count]), room=1)
                    if written:
                        grammar.rollback(len(written))
                        return ids[:count - 1]
        except ConstraintError:
            pass
        finally:
            grammar.rollback(count)
        return ids[:count]
