"""Row 53: the masks of a draft are made before the grammar has been shown what the pass before brought."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from shared_runtime import policy as contract
from shared_runtime.constraint import Constraint
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage5_backend_jump
from stages.stage5_backend_jump.base_grammar_backend import BaseGrammarObject
from stages.stage5_backend_jump.decoder import GrammarManagerPolicy
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request, sampled
from tests.museum.drafts import draft_with, saying
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, into_stage, masks, policies, ready


class WalksTooEarly(GrammarManagerPolicy):
    """Specimen of a stage's policy: a draft is walked from where the grammar was before the newest run."""

    def __init__(self, context: contract.StageContext) -> None:
        super().__init__(context)
        self._runs: dict[str, tuple[int, ...]] = {}

    def accept(self, batch: ScheduleBatch, rows: Sequence[contract.SampledRow]) -> list[contract.AcceptResult]:
        """Advance each grammar, and note by what."""
        results = super().accept(batch, rows)
        self._runs |= {row.req.rid: row.token_ids[:result.n_accepted]
                       for row, result in zip(rows, results, strict=True)}
        return results

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """One run behind."""
        late = {req.rid: (req.grammar, self._runs.get(req.rid, ())) for req in batch.sampled
                if len(batch.sampled) > 1 and isinstance(req.grammar, BaseGrammarObject)}
        for grammar, run in late.values():
            grammar.rollback(len(run))
        where = [position - len(late[req.rid][1]) if req.rid in late else position
                 for req, position in zip(batch.sampled, positions, strict=True)]
        rows = super().constrain(logits, batch, where)
        for grammar, run in late.values():
            for token_id in run:
                grammar.accept_token(token_id)
        return rows


def a_draft_is_walked_from_the_newest_token(build: PolicyBuild, bench: Bench) -> None:
    """A run of three tokens is accepted; the masks along the next draft go on from there."""
    policy, width = build(bench.context()), bench.tokenizer.vocabulary.width
    req = request(Constraint.regex("([0-9][x-z]){5}"))
    ready(policy, req)
    digit, letter = bench.tokenizer.encode("7y")
    run = (digit, letter, digit)
    result, = policy.accept(sampled(req), [contract.SampledRow(req, run)])
    hold(result.n_accepted == 3, f"a run of three right tokens is taken up to its token {result.n_accepted}")
    req.output_ids += run
    found = masks(policy, width, req, draft=(letter, digit))
    for row, (allowed, other) in enumerate(((letter, digit), (digit, letter), (letter, digit))):
        hold(bool(found[row][allowed]) and not found[row][other],
             f"row {row} of a draft is masked from a place that the answer has left")


def scenario(bench: Bench) -> None:
    """A model that writes digits and letters in turn, and guesses so."""
    digit, letter = bench.tokenizer.encode("7y")
    engine = bench.engine(5)
    draft_with(engine, lambda req: (letter, digit) if len(req.output_ids) % 2 else (digit, letter))
    params = saying(digit, letter, max_new_tokens=12)
    result = bench.run(engine, [Ask("x", Constraint.regex("([0-9][x-z]){5}"), params)])[0]
    hold(result.error is None, f"a token came out that the grammar refuses: {result.error}")
    hold(result.counts["accepted"] > 4, f"{result.counts['accepted']} drafts were taken of a model that guesses right")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    53, WalksTooEarly, {name: build for name, build in policies().items() if name.startswith("stage5")},
    a_draft_is_walked_from_the_newest_token, "a place that the answer has left",
    into_stage(stage5_backend_jump, WalksTooEarly, scenario, "that the grammar refuses"))
