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
        """What to feed beside the newest token of `req`.

        Args:
            req: free, or constrained by `grammar`, which stands behind all of its output and has not ended. It is
                moved over what is forced, and stands before what is drafted.
            room: most tokens.
        """
        self._book.open(req)
        run = self._forced_run(req, grammar) if room and grammar is not None else ()
        forced = run[:self._text.write(grammar, run, room)] if self._forces and grammar is not None else ()
        room -= len(forced)
        tail = self._followed(grammar, run[len(forced):][:room]) if self._drafts and grammar is not None else ()
        draft = self._book.take(req, "grammar", tail, room)
        if self._ngrams is not None and len(draft) in (0, len(tail)):
            found = self._ngrams.draft(req, room - len(draft), ahead=(*forced, *draft))
            if grammar is not None:
                found = self._followed(grammar, (*draft, *found))[len(draft):]
            draft += self._book.take(req, self._ngrams.name, found, room - len(draft))
        return Proposal(forced, draft, source="backend")

    def forget(self, req: Request) -> None:
        """The request has ended. Idempotent."""
        self._book.forget(req)
        if self._ngrams is not None:
            self._ngrams.forget(req)

    def _forced_run(self, req: Request, grammar: BaseGrammarObject) -> tuple[int, ...]:
        """The tokens of the forced text, up to one that the request would stop at; () when none is wanted."""
        if not self._forces and not self._drafts:
            return ()
        before = (req.prompt_ids[-CONTEXT_TOKENS:] + req.output_ids)[-CONTEXT_TOKENS:]
        ids = self._text.spell(before, grammar.forced_bytes())
        return tuple(takewhile(lambda token_id: token_id not in req.sampling.stop_token_ids, ids))

    def _followed(self, grammar: BaseGrammarObject, ids: Sequence[int]) -> tuple[int, ...]:
        """The leading tokens that the grammar takes.

        The mask decides when the pass is verified; this only spares it rows that nothing could reach.
        """
        taken = 0
        try:
            for token_id in ids:
                grammar.accept_token(token_id)
                taken += 1
        except ConstraintError:
            pass
        finally:
            grammar.rollback(taken)
        return tuple(ids[:taken])
