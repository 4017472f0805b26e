"""Row 15: the symbols of most bytes are spelled in a new way, and the length test does not see them any more."""

from __future__ import annotations

from collections import Counter

from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton
from stages.stage2_jump_forward import decoder
from stages.stage2_jump_forward.jump_forward import JumpForwardMap
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import REAL_MAPS, Forced, ask, forced_by, preferring


class MissedSymbols(JumpForwardMap):
    """Specimen of `JumpForwardMap`: a byte counts as a way on only if the pattern tells it apart from every other."""

    @classmethod
    def of(cls, dfa: ByteAutomaton) -> MissedSymbols:
        """Every state with one outgoing byte among those that have a name of their own."""
        columns = [dfa.table[:, byte].tobytes() for byte in range(256)]
        alike = Counter(columns)
        named = [byte for byte in range(128) if alike[columns[byte]] == 1]
        edges = {}
        for state, row in enumerate(dfa.table):
            ways = [byte for byte in named if row[byte] != DEAD]
            if len(ways) == 1 and not dfa.accepting[state]:
                edges[state] = (ways[0], int(row[ways[0]]))
        return cls(edges)


def what_is_forced_begins_every_text(forced: Forced, bench: Bench) -> None:
    """A quoted string may be empty, and it may not."""
    start = forced(bench, '"[^"]*"', b"")
    for text in ('""', '"a"', '"é"'):
        hold(text.encode().startswith(start), f"{start.decode()} is forced, and {text} matches too")
    hold(forced(bench, "é+x", b"") == "é".encode(), "é is not forced at the start of é+x")


def scenario(bench: Bench) -> None:
    """A quoted string by a model that would write into it."""
    engine = bench.engine(2)
    result = bench.run(engine, [ask('"[^"]{0,5}"""', logit_bias=preferring(engine, 'z"'))])[0]
    hold(result.text == '"zzzzz"""', f"the string was forced empty: {result.text}")


EXHIBIT: Exhibit[Forced] = Exhibit(
    15, forced_by(MissedSymbols.of), REAL_MAPS, what_is_forced_begins_every_text,
    '"" is forced, and "a" matches too',
    Injection(decoder, "JumpForwardMap", MissedSymbols, scenario, 'the string was forced empty: """"'))
