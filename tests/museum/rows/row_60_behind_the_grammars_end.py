"""Row 60: whether the grammar has ended is asked before a run of tokens, and not after each of them."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

from shared_runtime import policy as contract
from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage5_backend_jump
from stages.stage5_backend_jump.base_grammar_backend import REGISTRY, BaseGrammarBackend, BaseGrammarObject, Compiled
from stages.stage5_backend_jump.decoder import GrammarManagerPolicy
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request, sampled
from tests.museum.drafts import draft_with, saying
from tests.museum.exhibit import Exhibit
from tests.museum.grammars import AnyText
from tests.museum.policies import PolicyBuild, into_stage, policies, ready


class LooksBeforeTheRun(GrammarManagerPolicy):
    """Specimen of a stage's policy: a grammar that has not ended before the run takes all of it, as well as it can."""

    def accept(self, batch: ScheduleBatch, rows: Sequence[contract.SampledRow]) -> list[contract.AcceptResult]:
        """Advance each grammar."""
        results = []
        for row in rows:
            grammar = row.req.grammar
            assert isinstance(grammar, BaseGrammarObject)
            ended = grammar.is_terminated()
            for token_id in row.token_ids:
                try:
                    grammar.accept_token(token_id)
                except ConstraintError:
                    break
            results.append(contract.AcceptResult(len(row.token_ids), terminated=ended))
        return results


def nothing_is_accepted_behind_the_end(build: PolicyBuild, bench: Bench) -> None:
    """A run of a digit, the stop token and another digit."""
    policy, stop = build(bench.context()), min(bench.tokenizer.vocabulary.stop_ids)
    req = request(Constraint.regex("[0-9]"))
    ready(policy, req)
    digit, = bench.tokenizer.encode("7")
    result, = policy.accept(sampled(req), [contract.SampledRow(req, (digit, stop, digit))])
    hold(result.n_accepted == 2 and result.terminated, f"{result.n_accepted} tokens of a run that ends with its second")


class TwoTokens(AnyText):
    """A grammar that ends with its second token, without a stop token."""

    def _accept_text(self, token_id: int) -> bool:
        self.ids.append(token_id)
        self.finished = len(self.ids) == 2
        return True


class EndsByItself(BaseGrammarBackend):
    """A library whose grammars end so."""

    name = "ends-by-itself"
    kinds = frozenset(CONSTRAINT_KINDS)

    def init_value(self, constraint: Constraint) -> Compiled:
        """The same for every constraint."""
        return Compiled(TwoTokens(self.context.vocabulary))


def scenario(bench: Bench) -> None:
    """A draft of three tokens, all right, of which the grammar has room for one. No mask hides that here."""
    a, = bench.tokenizer.encode("a")
    with patch.dict(REGISTRY.factories, {EndsByItself.name: EndsByItself}):
        engine = bench.engine(5, backend=EndsByItself.name)
    draft_with(engine, lambda req: (a, a, a))
    with patch.object(engine.parts.policy, "constrain", lambda logits, batch, positions: []):
        result = bench.run(engine, [Ask("x", Constraint.regex("a"), saying(a, max_new_tokens=8, ignore_eos=True))])[0]
    hold(result.text == "aa", f"a grammar that ends with its second token says {result.text!r}")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    60, LooksBeforeTheRun, policies(), nothing_is_accepted_behind_the_end, "3 tokens of a run",
    into_stage(stage5_backend_jump, LooksBeforeTheRun, scenario, "that ends with its second token says"))
