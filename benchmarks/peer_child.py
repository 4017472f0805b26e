"""The other side of `peer_process`: runs under the peers' own Python, and imports nothing of this project.

One JSON object a line comes in, one goes out: {"op": "load" | "prepare" | "begin" | "answer", ...}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from itertools import pairwise
from typing import Any


class Guidance:
    """guidance over llama.cpp: its own loop, which appends what its grammar forces ("fast-forward")."""

    def __init__(self, words: dict[str, Any]) -> None:
        self._guidance: Any = importlib.import_module("guidance")
        models: Any = importlib.import_module("guidance.models")
        self._model: Any = models.LlamaCpp(words["gguf"], n_ctx=words["context"], n_threads=words["threads"],
                                           n_threads_batch=words["threads"], verbose=False, echo=False,
                                           enable_monitoring=False)
        self._engine: Any = self._model._interpreter.engine
        self._grammars: list[dict[str, Any]] = []
        self._lengths: list[int] = []  # of what the model was asked to read, a pass each
        ask = self._engine.get_logits

        def counting(token_ids: list[int], *rest: Any, **more: Any) -> Any:
            self._lengths.append(len(token_ids))
            return ask(token_ids, *rest, **more)

        self._engine.get_logits = counting

    def prepare(self, words: dict[str, Any]) -> int:
        """Its grammars are compiled when they are used; here they are only written down."""
        kinds = {"regex": lambda: {"regex": words["source"]}, "choice": lambda: {"choices": words["choices"]},
                 "json_schema": lambda: {"schema": json.loads(words["source"])}}
        if words["kind"] not in kinds:
            raise ValueError(f"guidance is not asked for {words['kind']}")
        self._grammars.append(kinds[words["kind"]]())
        return len(self._grammars) - 1

    def begin(self) -> None:
        """Its cache is one prompt long."""
        self._engine._cached_token_ids, self._engine._cached_logits = [], None

    def answer(self, words: dict[str, Any]) -> dict[str, Any]:
        """One answer, greedy."""
        asked = self._grammars[words["grammar"]]
        if "schema" in asked:
            grammar = self._guidance.json(name="answer", schema=asked["schema"], temperature=0.0,
                                          max_tokens=words["most"], separators=(", ", ": "))
        elif "regex" in asked:
            grammar = self._guidance.gen(name="answer", regex=asked["regex"], temperature=0.0,
                                         max_tokens=words["most"])
        else:
            grammar = self._guidance.select(asked["choices"], name="answer")
        self._lengths.clear()
        done = self._model + words["prompt"] + grammar
        asked = self._lengths  # twice in a row for the same ids: the second time the answer is remembered
        return {"text": done["answer"], "tokens": asked[-1] - asked[0] + 1,
                "passes": 1 + sum(one != before for before, one in pairwise(asked))}


class LlamaCpp:
    """llama-cpp-python: GBNF, or free."""

    def __init__(self, words: dict[str, Any]) -> None:
        self._library: Any = importlib.import_module("llama_cpp")
        self._model: Any = self._library.Llama(
            words["gguf"], n_ctx=words["context"], n_threads=words["threads"], n_threads_batch=words["threads"],
            verbose=False)
        self._grammars: list[Any] = []

    def prepare(self, words: dict[str, Any]) -> int:
        """A grammar in GBNF, or a schema that the library turns into one."""
        grammar: Any = self._library.LlamaGrammar
        made = (grammar.from_json_schema(words["source"], verbose=False) if words["kind"] == "json_schema"
                else grammar.from_string(words["gbnf"], verbose=False))
        self._grammars.append(made)
        return len(self._grammars) - 1

    def begin(self) -> None:
        """Forget the last prompt."""
        self._model.reset()

    def answer(self, words: dict[str, Any]) -> dict[str, Any]:
        """One answer, greedy; a pass for each token, the prompt's among them."""
        number = words["grammar"]
        bias = {self._model.token_eos(): float("-inf")} if words["least"] > 1 else None
        out = self._model.create_completion(
            words["ids"], max_tokens=words["most"], temperature=0.0, logit_bias=bias,
            grammar=None if number is None else self._grammars[number])
        ended = out["choices"][0]["finish_reason"] == "stop"
        tokens = out["usage"]["completion_tokens"] + int(ended)
        return {"text": out["choices"][0]["text"], "tokens": tokens, "passes": tokens}


def main() -> None:
    """Answer until the input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the libraries print is not an answer
    loop: Any = None
    for line in sys.stdin:
        words = json.loads(line)
        try:
            if words["op"] == "load":
                loop = {"guidance": Guidance, "llama.cpp": LlamaCpp}[words["loop"]](words)
                said: Any = None
            elif words["op"] == "begin":
                said = loop.begin()
            else:
                said = getattr(loop, words["op"])(words)
            reply = {"said": said}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        out.write(json.dumps(reply) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
