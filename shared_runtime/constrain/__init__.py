"""The seam between the runtime and a grammar: what every stage needs and no stage owns.

Nothing here knows a grammar library; it knows regular expressions as a language, and tokens as bytes.
"""
