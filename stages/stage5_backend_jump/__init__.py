"""Stage 5 (from March 2025): a grammar manager, one mask for the batch, reasoning; the scheduler does not jump."""

from .decoder import STAGE

__all__ = ["STAGE"]
