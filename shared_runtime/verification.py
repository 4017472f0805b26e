"""How far a draft was right: a pass samples a token behind each drafted one, and this reads them in order.

A row behind drafts is sampled exactly as plain decoding would sample it with those tokens in the output: same noise,
which is a function of seed and position, same penalties, same mask. So the tokens that come out are those of plain
decoding, whatever the draft; only the number of passes changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_runtime.errors import JumpforwardError, RequestError
from shared_runtime.request import Request
from shared_runtime.sampler import SampleOutput
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.trace import TokenOrigin


@dataclass(slots=True)
class Run:
    """What one request got in one pass: one token, and one more for each draft that was right.

    Attributes:
        req: the request. first_row: its first row of the sampled logits.
        token_ids: the tokens, in order. draft: what was offered. matched: leading drafts that were sampled too.
        error: why the run ends early, None when it does not.
        emitted: tokens that the finisher appended; filled by the scheduler.
    """

    req: Request
    first_row: int
    token_ids: tuple[int, ...]
    draft: tuple[int, ...]
    matched: int
    error: JumpforwardError | None = None
    emitted: int = 0

    @property
    def spelled(self) -> tuple[int, ...]:
        """The tokens that are text: without the request's own stop token at the end."""
        if self.token_ids and self.token_ids[-1] in self.req.sampling.stop_token_ids:
            return self.token_ids[:-1]
        return self.token_ids

    @property
    def origins(self) -> list[TokenOrigin]:
        """How each token came."""
        return ["draft_accepted" if index < self.matched else "sampled" for index in range(len(self.token_ids))]

    @property
    def kept_draft(self) -> int:
        """Drafts whose keys and values count: emitted, and not the newest token, which the next pass feeds."""
        return max(0, min(self.matched, self.emitted - 1))


def first_rows(batch: ScheduleBatch) -> list[tuple[int, Request, tuple[int, ...]]]:
    """Per sampled request: its first row, itself, and the draft that its further rows stand behind, one a token."""
    ahead = batch.ahead or [()] * len(batch.sampled)
    firsts = [row for row, drafted in enumerate(ahead) if not drafted]
    return [(row, batch.sampled[row], ahead[behind - 1])
            for row, behind in zip(firsts, [*firsts[1:], len(ahead)], strict=True)]


def verify(batch: ScheduleBatch, output: SampleOutput, stop_ids: frozenset[int]) -> list[Run]:
    """The run of each sampled request of `batch`, in order.

    A run ends with the first token that is not the drafted one, with a stop token, or with a row that could not be
    sampled.
    """
    runs: list[Run] = []
    first = 0
    for row in batch.rows:
        if row.samples:
            draft = tuple(row.ids[len(row.ids) - row.draft:])
            runs.append(_run(row.req, first, draft, output, stop_ids))
            first += row.draft + 1
    return runs


def _run(req: Request, first: int, draft: tuple[int, ...], output: SampleOutput, stop_ids: frozenset[int]) -> Run:
    run = Run(req, first, (), draft, 0)
    for index in range(len(draft) + 1):
        if first + index in output.errors:
            run.error = RequestError(output.errors[first + index], where=f"request {req.rid}")
            return run
        token_id = output.token_ids[first + index]
        run.token_ids = (*run.token_ids, token_id)
        if index == len(draft) or token_id != draft[index]:
            return run
        run.matched += 1
        if token_id in stop_ids or token_id in req.sampling.stop_token_ids:
            return run
    return run
