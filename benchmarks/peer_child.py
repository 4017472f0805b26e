"""The other side of `peer_process`: runs under the peers' own Python, and imports nothing of this project.

One JSON object a line comes in, one goes out: {"op": "versions" | "load" | "prepare" | "begin" | "answer", ...}.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
from typing import Any


class Guidance:
    """guidance over llama.cpp: its own loop, which appends what its grammar forces ("fast-forward").

    Its engine is asked as its own `chat_completion` asks it, with the prompt as what was said before: `model + prompt`
    would read the prompt once more, behind a second begin token, for nothing.
    """

    def __init__(self, words: dict[str, Any]) -> None:
        self._guidance: Any = importlib.import_module("guidance")
        models: Any = importlib.import_module("guidance.models")
        model = models.LlamaCpp(words["gguf"], n_ctx=words["context"], n_threads=words["threads"],
                                n_threads_batch=words["threads"], verbose=False, echo=False, enable_monitoring=False)
        self._engine: Any = model._interpreter.engine
        self._new_state: Any = type(model._interpreter.state)
        self._grammars: list[dict[str, Any]] = []
        self._known: set[str] = set()

    def prepare(self, words: dict[str, Any]) -> int:
        """Its grammars are compiled when they are used; here they are only written down."""
        kinds = {"regex": lambda: {"regex": words["source"]}, "choice": lambda: {"choices": words["choices"]},
                 "json_schema": lambda: {"schema": json.loads(words["source"])}}
        self._grammars.append(kinds[words["kind"]]())
        return len(self._grammars) - 1

    def begin(self) -> None:
        """Its cache is one prompt long."""
        self._engine._cached_token_ids, self._engine._cached_logits = [], None

    def answer(self, words: dict[str, Any]) -> dict[str, Any]:
        """One answer, greedy. Its tokens with the stop token where one was sampled: it ends without where it can."""
        if words["prompt"] not in self._known:
            if self._engine.tokenizer.encode(words["prompt"].encode()) != words["ids"]:
                raise ValueError("it reads this prompt as other tokens")
            self._known.add(words["prompt"])
        state = self._new_state()
        state.prompt = words["prompt"]
        number = words["grammar"]
        asked = {} if number is None else self._grammars[number]
        turns = self._engine(state, self._grammar(asked, words["most"]).ll_grammar())
        text, tokens = b"", 0
        while True:
            try:
                turn = next(turns)
            except StopIteration as end:
                return {"text": text.decode(errors="ignore"), "tokens": tokens, "passes": end.value.forward_passes}
            text = turn.capture_groups.get("answer", text)
            # Of the prompt it may take tokens back, and spell them anew with the answer's first characters.
            tokens += sum(not one.is_backtracked for one in turn.tokens) - turn.backtrack

    def _grammar(self, asked: dict[str, Any], most: int) -> Any:
        if "schema" in asked:
            return self._guidance.json(name="answer", schema=asked["schema"], temperature=0.0, max_tokens=most,
                                       separators=(", ", ": "))
        if "choices" in asked:
            return self._guidance.select(asked["choices"], name="answer")
        return self._guidance.gen(name="answer", temperature=0.0, max_tokens=most, **asked)


class LlamaCpp:
    """llama-cpp-python: GBNF, or free."""

    def __init__(self, words: dict[str, Any]) -> None:
        self._library: Any = importlib.import_module("llama_cpp")
        self._model: Any = self._library.Llama(
            words["gguf"], n_ctx=words["context"], n_threads=words["threads"], n_threads_batch=words["threads"],
            verbose=False)
        vocabulary = self._library.llama_model_get_vocab(self._model.model)
        self._ends = [token for token in range(self._model.n_vocab())
                      if self._library.llama_vocab_is_eog(vocabulary, token)]
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
        bias = dict.fromkeys(self._ends, float("-inf")) if words["least"] > 1 else None
        out = self._model.create_completion(
            words["ids"], max_tokens=words["most"], temperature=0.0, logit_bias=bias,
            grammar=None if number is None else self._grammars[number])
        ended = out["choices"][0]["finish_reason"] == "stop"
        tokens = out["usage"]["completion_tokens"] + int(ended)
        return {"text": out["choices"][0]["text"], "tokens": tokens, "passes": tokens}


def versions(packages: list[str]) -> dict[str, str | None]:
    """Of installed packages; None where there is none."""
    found: dict[str, str | None] = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def main() -> None:
    """Answer until the input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the libraries print is not an answer
    loop: Any = None
    for line in sys.stdin:
        words = json.loads(line)
        try:
            if words["op"] == "versions":
                said: Any = versions(words["packages"])
            elif words["op"] == "load":
                loop = {"guidance": Guidance, "llama.cpp": LlamaCpp}[words["loop"]](words)
                said = None
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
