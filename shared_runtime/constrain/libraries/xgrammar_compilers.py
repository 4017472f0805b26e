"""The library's compilers: one that makes every mask at once, and one that makes a mask when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared_runtime.constrain.schema.counted_strings import is_written_out

if TYPE_CHECKING:
    import xgrammar


@dataclass(frozen=True)
class XGrammarCompilers:
    """Both over one vocabulary. The library's own cache stays off: ours has the refusals too. May be shared by threads.

    Attributes:
        eager: compiles while nobody waits, and later masks take microseconds. lazy: compiles in a millisecond; the
            first mask of each state takes up to 10 ms.
    """

    eager: xgrammar.GrammarCompiler
    lazy: xgrammar.GrammarCompiler

    @classmethod
    def over(cls, tokens: xgrammar.TokenizerInfo) -> XGrammarCompilers:
        """Make both."""
        import xgrammar

        return cls(eager=xgrammar.GrammarCompiler(tokens, max_threads=1, cache_enabled=False),
                   lazy=xgrammar.GrammarCompiler(tokens, max_threads=1, cache_enabled=False,
                                                 enable_dynamic_compilation=True))

    def suited_to(self, text: str) -> xgrammar.GrammarCompiler:
        """The one for a schema's grammar, or a tag. Strings of up to 200 characters have 200 states, 2 s of masks, of
        which an answer needs a few: those go to the lazy one."""
        return self.lazy if is_written_out(text) else self.eager
