"""Stage 4 (October 2024 to March 2025): grammar backends behind one interface, compiled beside the loop."""

from .decoder import STAGE

__all__ = ["STAGE"]
