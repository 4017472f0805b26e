"""How much blank space the `any` option leaves between JSON tokens: the same on every backend.

Enough for an indented document, and bounded: upstream's run was unbounded for two weeks (#1277 to #1438), and a model
that likes blank lines never came to an end (museum row 32).
"""

MOST_BLANKS = 16

BLANKS = f"[ \\t\\n\\r]{{0,{MOST_BLANKS}}}"
"""The same as a regex."""
