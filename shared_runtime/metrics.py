"""What one request cost: times from the engine's clock, and counts that no machine changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RequestMetrics:
    """Owned by the scheduler; times are `time.perf_counter()` seconds.

    Attributes:
        arrival: when the engine took the request. admitted: first put into a batch. first_token: first token out.
        finished: when it ended.
        compile_s: seconds from arrival until its grammar was ready (0 for a free request).
        prompt_tokens: length of the prompt; constant, whatever a stage does to the ids.
        cached_tokens: prompt tokens whose keys and values were already there at first admission.
        emitted_tokens: tokens of the answer. sampled_tokens: those that a forward pass was spent on.
        forward_passes: passes that this request took part in, the prompt's own included.
        reencoded_tokens: output ids that a stage replaced by encoding the text again.
        drafted_tokens: tokens offered as drafts. accepted_tokens: drafts that verification took.
        retractions: how often it was put back for want of memory.
        masks: passes in which a grammar masked its logits. mask_s: seconds spent on that.
    """

    arrival: float
    admitted: float | None = None
    first_token: float | None = None
    finished: float | None = None
    compile_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    emitted_tokens: int = 0
    sampled_tokens: int = 0
    forward_passes: int = 0
    reencoded_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    retractions: int = 0
    masks: int = 0
    mask_s: float = 0.0

    @property
    def queue_s(self) -> float | None:
        """Seconds from arrival to the first batch."""
        return None if self.admitted is None else self.admitted - self.arrival

    @property
    def prefill_s(self) -> float | None:
        """Seconds from the first batch to the first token."""
        if self.admitted is None or self.first_token is None:
            return None
        return self.first_token - self.admitted

    @property
    def ttft_s(self) -> float | None:
        """Time to first token: seconds from arrival to the first token."""
        return None if self.first_token is None else self.first_token - self.arrival

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first, in seconds; None below two tokens."""
        if self.first_token is None or self.finished is None or self.emitted_tokens < 2:
            return None
        return (self.finished - self.first_token) / (self.emitted_tokens - 1)

    def as_dict(self) -> dict[str, float | int | None]:
        """Counts and times (seconds) for results and `--json`."""
        return {
            "prompt_tokens": self.prompt_tokens, "cached_tokens": self.cached_tokens,
            "emitted_tokens": self.emitted_tokens, "sampled_tokens": self.sampled_tokens,
            "forward_passes": self.forward_passes, "retractions": self.retractions,
            "drafted_tokens": self.drafted_tokens, "accepted_tokens": self.accepted_tokens,
            "masks": self.masks, "mask_s": self.mask_s, "compile_s": self.compile_s, "queue_s": self.queue_s,
            "prefill_s": self.prefill_s, "ttft_s": self.ttft_s, "tpot_s": self.tpot_s,
        }
