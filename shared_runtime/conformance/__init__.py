"""Tries grammars on the stages' real masks, without a model: the engine of `jumpforward check` and of the suite."""
