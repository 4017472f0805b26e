"""Row 18: the "backup" of the output is the list that is then extended, so a refused jump is not undone."""

from __future__ import annotations

from dataclasses import replace

from shared_runtime.constraint import Constraint
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.trace import RewriteRecord
from stages import stage2_jump_forward
from stages.stage2_jump_forward.decoder import JumpForwardPolicy, RequestState
from tests.museum.bench import Bench, hold, request, unbroken
from tests.museum.exhibit import Exhibit
from tests.museum.jumps import ask
from tests.museum.policies import PolicyBuild, feed, into_stage, policies, ready

PATTERN = "b霍格沃兹|b霍比特人"


class BackupIsAnAlias(JumpForwardPolicy):
    """Specimen of a stage's policy: the bytes that complete a character are appended before the jump is decided."""

    def _plan(self, req: Request, grammar: RequestState) -> RewriteRecord | None:
        backup, before = req.output_ids, list(req.output_ids)
        for byte in grammar.jumps.forced(grammar.state):
            if not 0x80 <= byte < 0xC0:
                break
            req.output_ids.append(self._context.vocabulary.byte_tokens[byte])
        note = super()._plan(replace(req, output_ids=before), grammar)
        if note is None:
            req.output_ids = backup
        else:
            req.output_ids = before
        return note


def a_refused_jump_changes_nothing(build: PolicyBuild, bench: Bench) -> None:
    """Half a character has come, and prompt and answer make one token together, so no jump is possible."""
    policy, encode = build(bench.context()), bench.tokenizer.encode
    req = request(Constraint.regex(PATTERN), prompt_ids=encode("a "))
    ready(policy, req)
    feed(policy, req, *encode("b霍"), *encode("格")[:2])
    before = (list(req.output_ids), list(req.origins), list(req.prompt_ids), req.kv_len, policy.describe(req))
    requeue = policy.before_decode(ScheduleBatch.about_to_decode([req]))
    hold(not requeue.reqs, "the jump was not refused, although prompt and answer make one token")
    after = (list(req.output_ids), list(req.origins), list(req.prompt_ids), req.kv_len, policy.describe(req))
    hold(after == before, f"a refused jump left {len(after[0]) - len(before[0])} byte tokens in the output")


def scenario(bench: Bench) -> None:
    """The same in an engine of stage 2."""
    with unbroken("the output is no longer what the grammar has seen"):
        result = bench.run(bench.engine(2), [ask(PATTERN, "a ")])[0]
    hold(result.text in PATTERN.split("|"), f"a refused jump changed the answer: {result.text!r}")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    18, BackupIsAnAlias, policies(), a_refused_jump_changes_nothing, "left 1 byte tokens in the output",
    into_stage(stage2_jump_forward, BackupIsAnAlias, scenario, "no longer what the grammar has seen"))
