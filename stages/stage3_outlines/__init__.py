"""Stage 3 (February 2024): Outlines as a dependency. The copied files are gone; JSON schemas are new."""

from .decoder import STAGE

__all__ = ["STAGE"]
