# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 05 Jump-forward leaves the scheduler
#
# On 3 March 2025 SGLang took jump-forward out of its scheduler (#4032). The methods stayed on the grammar objects. Many
# texts say that the feature moved into the grammar libraries. This notebook checks that.
#
# **Can you answer these? Then skip to 06.**
#
# 1. Why do jumping and an overlapped loop exclude each other?
# 2. What did the removal take out, and what did it leave?
# 3. Who calls `try_jump_forward` since then?
# 4. What does a request lose besides speed?

# %% tags=["elsewhere"]
# Only elsewhere (Colab, or VS Code with a Python that has no jumpforward): name the git address of this repository.
# Where jumpforward is installed, the cell does nothing. What is under the `if` was not run by the project's tests.
import importlib.util
import subprocess
import sys
from pathlib import Path

ADDRESS = ""
if importlib.util.find_spec("shared_runtime") is None:
    if not ADDRESS:
        raise RuntimeError("jumpforward is not installed: put the git address of its repository into ADDRESS")
    subprocess.run(["git", "clone", "--depth", "1", ADDRESS, "jumpforward"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "-e", "./jumpforward[backends,history,notebooks]",
                    "pytest", "-c", "jumpforward/constraints.txt"], check=True)  # pytest is for the museum of bugs
    sys.path.insert(0, str(Path("jumpforward").resolve()))

# %% [markdown]
# ## The commit, as data

# %%
from history.timeline import select, timeline
from jumpforward.notebook import Table, Tokens

removal = next(row for row in timeline() if row.hash.startswith("935cda944b"))
print(f"{removal.date} {removal.title}: {removal.files_changed} files, +{removal.insertions} -{removal.deletions}")
Table(["date", "commit", "what"], [(row.date, row.short, row.title) for row in select(timeline(), stages=[5])[:8]])

# %% [markdown]
# It was off by default long before: the overlapped loop had been the default since November 2024, and forced jumping off.
#
# ## What a request feels
#
# **Predict.** The same schema, the same library, before and after: how many passes? The same tokens?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# One pass a token instead of one a *sampled* token. And other tokens: under a mask, a forced word is spelled by
# whatever fragment has most probability in that step (look at `capital`); a jump encodes the text as a whole. But a jump
# writes no more than what is forced: it ends with the blank, and the word behind it begins without one.
# </details>

# %%
from IPython.display import display

from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.sampling_params import SamplingParams

patient = GrammarLimits(compile_timeout=120.0)  # a busy machine shall not decide
schema = Constraint.json_schema({
    "type": "object", "required": ["city", "country", "is_capital"], "additionalProperties": False,
    "properties": {"city": {"enum": ["Paris", "Lyon"]}, "country": {"enum": ["France", "Italy"]},
                   "is_capital": {"type": "boolean"}}})
question = [{"role": "user", "content": "What is the capital of France? Answer in JSON."}]
sampling = SamplingParams(max_new_tokens=32)
before = Engine(EngineConfig(stage=4, backend="xgrammar", limits=patient))
after = Engine(EngineConfig(stage=5, backend="xgrammar", limits=patient), loaded=before.parts.loaded)
vocabulary = before.tokenizer.vocabulary
jumped, plain = (engine.generate_one(messages=question, constraint=schema, sampling=sampling)
                 for engine in (before, after))
display(Tokens.of(vocabulary, jumped.token_ids, jumped.origins, f"stage 4: {jumped.counts['forward_passes']} passes"),
        Tokens.of(vocabulary, plain.token_ids, plain.origins, f"stage 5: {plain.counts['forward_passes']} passes"))

# %%
assert jumped.text == plain.text
assert jumped.counts["forward_passes"] < plain.counts["forward_passes"] == len(plain.token_ids)

# %% [markdown]
# ## Who still asks?
#
# **Predict.** The libraries can still say what is forced. Does any code of stage 5 call the three methods?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# No. They are defined and never called, as upstream: the feature did not move, it became unreachable. (The reasoning
# wrapper passes each of them on to the grammar inside; a method that asks its own name does not count as a caller.)
# </details>

# %%
import ast
from pathlib import Path

import stages

three = {"try_jump_forward", "jump_forward_str_state", "jump_and_retokenize"}


def uses(folder):
    """(calls, definitions) of the three methods in a stage's code."""
    calls, definitions = [], []
    for path in sorted((Path(stages.__file__).parent / folder).rglob("*.py")):
        passed_on = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):  # outer nodes first
            if isinstance(node, ast.FunctionDef) and node.name in three:
                definitions.append(f"{path.name}:{node.lineno}")
                passed_on |= set(ast.walk(node))
            if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in three
                    and node not in passed_on):
                calls.append(f"{path.name}:{node.lineno}")
    return calls, definitions


found = {folder: uses(folder) for folder in ("stage4_backends", "stage5_backend_jump")}
Table(["stage", "calls", "definitions"], [(folder, ", ".join(calls) or "none", ", ".join(definitions))
                                          for folder, (calls, definitions) in found.items()])

# %%
assert found["stage4_backends"][0] != []
assert found["stage5_backend_jump"][0] == []

# %% [markdown]
# We can ask the library ourselves. It answers, as it always did:

# %%
grammar = after.parts.policy.backend.init_value(schema).grammar.copy()
helper = grammar.try_jump_forward()
print("stage 5's grammar, at the start, forces", repr(helper and helper.text))
for token in before.tokenizer.spell('{"city": "L'):
    grammar.accept_token(token)
helper = grammar.try_jump_forward()
print("behind {\"city\": \"L it forces", repr(helper and helper.text))
assert helper is not None
assert helper.text.startswith("yon")

# %% [markdown]
# ## Why it had to go
#
# A jump rewrites a request *between* two steps. The overlapped loop launches step n+1 before the results of step n are
# looked at. When the scheduler learns that text is forced, the next pass is already running, on the old ids. So one of
# the two had to be off, and overlap paid for every request, also for those without a grammar.
#
# The stepper shows both stages on the same request. In stage 4 look at the batch: the request leaves it at a jump and
# comes back as an extend. In stage 5 it stays.

# %% [markdown]
# ## The stepper

# %%
from jumpforward.stepper.recording import record
from jumpforward.stepper.widget import StepperWidget

StepperWidget([record(EngineConfig(stage=stage, backend="xgrammar", limits=patient), None, messages=question,
                      constraint=schema, sampling=sampling) for stage in (4, 5)])

# %% [markdown]
# ## What came in its place
#
# The grammar manager: a hit is answered at once, a miss waits with everybody who wants the same, a failure has an object
# of its own, and a failure is remembered. Ask twice for a schema that cannot be:

# %%
bad = Constraint.json_schema({"type": "objekt"})
errors = [after.generate(messages=[question], constraint=bad, sampling=sampling)[0] for _ in range(2)]
for one in errors:
    print(one.finish_reason, "|", str(one.error)[:120], "|", f"compile {one.ms['compile']:.2f} ms")
assert [one.finish_reason for one in errors] == ["error", "error"]
assert all(one.text == "" for one in errors), "a bad schema must never mean a free answer"

# %% [markdown]
# ## Break it
#
# A bad grammar was first a crash, then a free answer, and from June 2025 on an error, because `None` meant three things
# (row 37). Row 69 was never mended in the history we read: equal new grammars are compiled once for each request.

# %%
from tests.museum.__main__ import main as museum

assert museum(["37", "69"]) == 0

# %% [markdown]
# ## Measure it
#
# What is a pass worth? Passes and milliseconds, before and after. Put in a format of your own: the longer its fixed
# parts, the more it loses.

# %%
formats = {"city": schema, "date": Constraint.regex(r"[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")}
rows = []
for name, constraint in formats.items():
    for stage, engine in ((4, before), (5, after)):
        one = engine.generate_one(messages=question, constraint=constraint, sampling=sampling)
        rows.append((name, stage, one.counts["forward_passes"], len(one.token_ids), one.ms["total"] - one.ms["compile"]))
Table(["format", "stage", "passes", "tokens", "ms"], rows)

# %% [markdown]
# ## Test yourself
#
# <details><summary>1. Why do jumping and overlap exclude each other?</summary>
#
# A jump changes ids, slots and place in the batch between two steps; with overlap there is no "between": the next pass
# was launched before the last one's tokens were known.
# </details>
#
# <details><summary>2. What was taken out?</summary>
#
# The check in front of a decode step, the surgery on the batch, the counters, the argument and the tests. What stayed
# are three methods per backend that nothing calls.
# </details>
#
# <details><summary>3. Did the feature move into the libraries?</summary>
#
# No. The libraries could name forced text before and can now; nobody asks them.
# </details>
#
# <details><summary>4. What is lost besides speed?</summary>
#
# The spelling. Full masks hand forced words to fragments, and the model reads on from ids as it hardly saw in training.
# </details>
#
# ## How to say it in an interview
#
# > "Jump-forward died of the overlap scheduler, not of the libraries. It edits a request between steps, and overlap
# > leaves no such moment; overlap helps every request, so jumping was forced off in November 2024 and deleted in March
# > 2025. The hooks on the grammar objects survived without a caller. To bring it back you have to go through a path that
# > the overlapped loop already has, which is speculative decoding: forced text as a draft, verified under the mask."
#
# ## The commits
#
# - [`ffd20fcd03`](https://github.com/sgl-project/sglang/commit/ffd20fcd037fa2815c6a5dd8fa165200f7649d0d) (2024-11-19, #2095): masks and the overlapped loop; jumping is forced off there.
# - [`935cda944b`](https://github.com/sgl-project/sglang/commit/935cda944b82d4828e9efb6606cd449afa4cd71c) (2025-03-03, #4032): the removal.
# - [`452db50808`](https://github.com/sgl-project/sglang/commit/452db508089722f0002a72e65c87c0ddd2f8fb53) (2025-03-17, #4386): xgrammar becomes the default.
# - [`20fd53b8f6`](https://github.com/sgl-project/sglang/commit/20fd53b8f66358c922064c466b49604ea0b8fba9) (2025-06-01, #6803): invalid grammars are objects, and end their request with an error.
# - [`5b7bed7ca4`](https://github.com/sgl-project/sglang/commit/5b7bed7ca429b32416a35909d4dc1fa5d726707c) (2026-01-12, #16820): the grammar manager.
