"""A pattern that is searched for, as JSON Schema's `pattern` is: the texts that hold a match somewhere.

A regex constraint matches the whole output, so there an anchor at the edge says nothing. Here it does: `a` is found in
"cab", `^a` is not. What comes out is a tree without anchors, for the whole text.
"""

from __future__ import annotations

from shared_runtime.constrain.regex.charset import EVERYTHING, NOTHING
from shared_runtime.constrain.regex.regex_dialect import read_tree
from shared_runtime.constrain.regex.regex_parser import PatternReader
from shared_runtime.constrain.regex.regex_tree import EMPTY, Alternate, Concat, Node, Repeat, alternate, concat, repeat

# Anchors while a pattern is read: nodes that mean the empty text, and that no constructor makes.
_START, _END = Repeat(EMPTY, 1, 1), Repeat(EMPTY, 2, 2)

_ANYTHING = repeat(EVERYTHING, 0, None)


def search_tree(pattern: str) -> Node:
    """The texts in which `pattern` is found. `$` is the end of the text alone, not also before a last newline.

    Raises:
        ConstraintError: as `regex_dialect.normalise`; an anchor may stand at the outer edges only.
    """
    tree = read_tree(PatternReader(pattern, edges=(_START, _END)))
    anchored, free = _split(tree, _START)
    from_start = alternate([anchored, concat([_ANYTHING, free])])
    anchored, free = _split(from_start, _END)
    return alternate([anchored, concat([free, _ANYTHING])])


def _split(node: Node, anchor: Node) -> tuple[Node, Node]:
    """The ways through `node` that pass the anchor, and those that do not, both without it.

    The reader lets nothing of any width stand outside of an anchor, so what passes it does so at the edge.
    """
    if node == anchor:
        return EMPTY, NOTHING
    match node:
        case Concat(parts):
            ways = [_split(part, anchor) for part in parts]
            free = concat(without for _, without in ways)
            passing = [concat(alternate(way) if index != place else way[0] for index, way in enumerate(ways))
                       for place, (through, _) in enumerate(ways) if through != NOTHING]
            return alternate(passing), free
        case Alternate(branches):
            ways = [_split(branch, anchor) for branch in branches]
            return alternate(through for through, _ in ways), alternate(without for _, without in ways)
        case Repeat(item, low, high) if item != EMPTY:
            through, without = _split(item, anchor)
            if through == NOTHING:
                return NOTHING, node
            # An item with an anchor is taken at most once, or has no width.
            return alternate([through, without]), repeat(without, low, high)
    return NOTHING, node
