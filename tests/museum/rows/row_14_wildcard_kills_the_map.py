"""Row 14: the table from classes to their characters lists only what the pattern names; a wildcard is not in it."""

from __future__ import annotations

from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton
from stages.stage2_jump_forward import decoder
from stages.stage2_jump_forward.jump_forward import JumpForwardMap
from tests.museum.bench import Bench, hold, unbroken
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import REAL_MAPS, Forced, ask, forced_by


class ListedCharactersOnly(JumpForwardMap):
    """Specimen of `JumpForwardMap`: ways are classes of bytes, looked up in a table that holds ASCII alone."""

    @classmethod
    def of(cls, dfa: ByteAutomaton) -> ListedCharactersOnly:
        """Every state whose one way on is a class of one character."""
        columns = [dfa.table[:, byte].tobytes() for byte in range(256)]
        listed: dict[bytes, list[int]] = {}
        for byte in range(128):
            listed.setdefault(columns[byte], []).append(byte)
        edges = {}
        for state, row in enumerate(dfa.table):
            ways = {columns[byte] for byte in range(256) if row[byte] != DEAD}
            if len(ways) == 1 and not dfa.accepting[state]:
                characters = listed[ways.pop()]
                if len(characters) == 1:
                    edges[state] = (characters[0], int(row[characters[0]]))
        return cls(edges)


def a_map_is_built_of_any_pattern(forced: Forced, bench: Bench) -> None:
    """Wildcards, negated classes, characters of several bytes."""
    for pattern, text in (("a*b", b""), (".*", b""), ('"[^"]*"', b'"'), ("é+x", "é".encode())):
        with unbroken(f"no map of {pattern!r}"):
            found = forced(bench, pattern, b"")
        hold(found == text, f"at the start of {pattern!r} {found!r} is forced")


def scenario(bench: Bench) -> None:
    """A request with a wildcard."""
    with unbroken("the request was killed"):
        result = bench.run(bench.engine(2), [ask(".{1,3}")])[0]
    hold(result.error is None, f"the request was killed: {result.error}")


EXHIBIT: Exhibit[Forced] = Exhibit(
    14, forced_by(ListedCharactersOnly.of), REAL_MAPS, a_map_is_built_of_any_pattern, r"no map of '\.\*': KeyError",
    Injection(decoder, "JumpForwardMap", ListedCharactersOnly, scenario, "the request was killed"))
