"""The language model: configuration, weights, layers, and the one that is embedded."""
