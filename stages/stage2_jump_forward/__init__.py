"""Stage 2 (February 2024): jump-forward. Where only one text is possible, it is written instead of sampled."""

from .decoder import STAGE

__all__ = ["STAGE"]
