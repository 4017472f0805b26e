"""Slow and simple answers to "which tokens may come next?", each by a method of its own.

`nfa_oracle` simulates a Thompson automaton over characters, built from Python's own parse of the pattern;
`partial_oracle` asks the `regex` package for partial matches; `byte_reachability` takes derivatives over bytes and
searches the graph of states and tokens backward. None of them shares code with a stage.
"""
