"""Stage 1 (January 2024): the copied FSM. A regex becomes an automaton, and each state a set of tokens."""

from .decoder import STAGE

__all__ = ["STAGE"]
