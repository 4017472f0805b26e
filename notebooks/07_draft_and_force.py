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
# # 07 Jump-forward given back: draft and force
#
# Upstream's jump is unreachable (05). The libraries can still name the forced text. This notebook gives it back by two
# ways that go through an ordinary decode step, and asks what masking does to *spelling*. Both ways are ours: SGLang has
# nothing like them.
#
# **Can you answer these? Then skip to 08.**
#
# 1. Forced text as a draft: which pass verifies it, and can an answer change?
# 2. Forced text appended outright: what changes, and why may that be better or worse?
# 3. Why is the end of a forced text held back?
# 4. What does a mask do to a word that the model would have written as one token?

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

# %%
from IPython.display import display

from jumpforward.notebook import Table, Tokens
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageOptions
from shared_runtime.sampling_params import SamplingParams

patient = GrammarLimits(compile_timeout=120.0)  # a busy machine shall not decide
schema = Constraint.json_schema({
    "type": "object", "required": ["city", "country", "is_capital"], "additionalProperties": False,
    "properties": {"city": {"enum": ["Paris", "Lyon"]}, "country": {"enum": ["France", "Italy"]},
                   "is_capital": {"type": "boolean"}}})
question = [{"role": "user", "content": "What is the capital of France? Answer in JSON."}]
sampling = SamplingParams(max_new_tokens=32)
modes = ("none", "draft", "force", "force+draft")
engines = {}
for mode in modes:
    share = engines["none"].parts.loaded if engines else None
    engines[mode] = Engine(EngineConfig(stage=5, backend="xgrammar", limits=patient,
                                        options=StageOptions(backend_jump=mode)), loaded=share)
vocabulary = engines["none"].tokenizer.vocabulary

# %% [markdown]
# ## Four modes, one request
#
# `none` is upstream today. `draft` offers forced tokens as drafts: one pass scores all of them, and position by position
# the token that is sampled under the mask decides. `force` appends what is forced without sampling. `force+draft`
# appends, and drafts the tail that was held back.
#
# **Predict.** Which modes give the very tokens of `none`? Order them by passes.
#
# <details><summary>Our answer, for after the next cell</summary>
#
# `draft` does: a draft that the masked model would not have chosen is not taken. It saves passes and changes nothing.
# `force` gives other tokens, spelled as the tokenizer spells, in the fewest passes.
# </details>

# %%
results = {mode: engine.generate_one(messages=question, constraint=schema, sampling=sampling)
           for mode, engine in engines.items()}
for mode, one in results.items():
    display(Tokens.of(vocabulary, one.token_ids, one.origins, f"{mode}: {one.counts['forward_passes']} passes, "
                      f"{one.counts['accepted']} of {one.counts['drafted']} drafted tokens taken, "
                      f"{one.counts['forced']} forced"))

# %%
assert results["draft"].token_ids == results["none"].token_ids
assert results["draft"].counts["forward_passes"] < results["none"].counts["forward_passes"]
assert results["force"].counts["forward_passes"] < results["none"].counts["forward_passes"]
assert {one.text for one in results.values()} == {results["none"].text}

# %% [markdown]
# ## What masking does to spelling
#
# Compare the tokens with those of the tokenizer for the same text. Where they differ, the model was pushed into a
# spelling that it hardly saw in training.

# %%
usual = engines["none"].tokenizer.spell(results["none"].text)
display(Tokens.of(vocabulary, usual, title="the tokenizer's own"))
Table(["mode", "tokens without stop", "the tokenizer's own", "the same ids"],
      [(mode, len(one.token_ids) - 1, len(usual), one.token_ids[:-1] == usual) for mode, one in results.items()])

# %% [markdown]
# **Predict.** The token `capital` was allowed. Why did the model write it in pieces all the same?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# It was allowed, as were all its beginnings. After `is_` the model would rather write something else altogether; among
# what is left, a fragment happened to have more probability than the whole word. The mask compares tokens, not words.
# </details>

# %%
traced = Engine(EngineConfig(stage=5, backend="xgrammar", limits=patient, trace=True, overlap=False),
                loaded=engines["none"].parts.loaded)
traced.add_request(messages=question, constraint=schema, sampling=sampling)
behind, shown = "", []
while traced.has_work:
    turn = traced.step()
    for one in turn.requests:
        if behind.endswith("is_"):
            shown = [("wanted", repr(best.text), f"{100 * best.prob:.4f}") for best in one.top_raw[:4]]
            shown += [("allowed", repr(best.text), f"{100 * best.prob:.1f}") for best in one.top_masked[:6]]
            kept = one.allowed_mass
        behind += "".join(token.text for token in one.tokens)
traced.take_events()
print(f"behind 'is_' the mask left {100 * kept:.4f} % of the probability")
Table(["", "token", "%"], shown)

# %% [markdown]
# ## Why an end is held back
#
# `force` never touches what was emitted. Forced text ends somewhere, and its last piece might become part of a longer
# token with what comes next: `": ` and then `true` is `":` and ` true` to the tokenizer. So the last piece is written only
# when no longer token can swallow it. Look at the end of each forced run above: stage 2 would have written the blank.
# Here is stage 4 on the same request, with the old jump:

# %%
old = Engine(EngineConfig(stage=4, backend="xgrammar", limits=patient), loaded=engines["none"].parts.loaded)
jumped = old.generate_one(messages=question, constraint=schema, sampling=sampling)
display(Tokens.of(vocabulary, jumped.token_ids, jumped.origins, f"stage 4: {jumped.counts['forward_passes']} passes"),
        Tokens.of(vocabulary, results["force"].token_ids, results["force"].origins,
                  f"force: {results['force'].counts['forward_passes']} passes"))
Table(["way", "the tokenizer's own ids"], [("stage 4's jump", jumped.token_ids[:-1] == usual),
                                           ("force", results["force"].token_ids[:-1] == usual)])

# %%
assert results["force"].token_ids[:-1] == usual

# %% [markdown]
# ## The stepper
#
# Press `d` for the next draft, `r` for a rejected one, `j` for forced text.

# %%
from jumpforward.stepper.recording import record
from jumpforward.stepper.widget import StepperWidget

StepperWidget([record(EngineConfig(stage=5, backend="xgrammar", limits=patient, options=StageOptions(backend_jump=mode)),
                      None, messages=question, constraint=schema, sampling=sampling) for mode in ("draft", "force")])

# %% [markdown]
# ## Break it
#
# Drafts and grammars have bugs of their own. Row 53: masks along a draft start from an old place. Row 57: nothing masks
# the draft at all. Row 60: an answer goes on behind its grammar's end. Row 62: the whole run is booked, though only a part
# was emitted.

# %%
from tests.museum.__main__ import main as museum

assert museum(["53", "57", "60", "62"]) == 0

# %% [markdown]
# Row 57 in the whole stage, to step through: what is drafted counts, whatever the masked model would have chosen.
#
# **Predict.** Forced text is right in any case, so the answer stays in the language. What is lost?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# That `draft` changes nothing. The ids are the draft's, not those that `none` chooses; the model reads on from them and
# may go another way, here to another name. It is `force`, without the end held back and without anybody saying so.
# </details>

# %%
from tests.museum.exhibits import specimen

ship = {"messages": [{"role": "user", "content": "Invent a ship"}], "sampling": sampling,
        "constraint": Constraint.regex(r'\{"ship": "[A-Z][a-z]{2,8}", "rig": "(sloop|schooner)"\}')}
drafts = EngineConfig(stage=5, backend="xgrammar", limits=patient, options=StageOptions(backend_jump="draft"))
plain = engines["none"].generate_one(**ship)
verified = record(drafts, None, **ship)
with specimen(57):
    believed = record(drafts, None, **ship)
print(f"none: {plain.text}\ndraft: {verified.answer}\ndraft, with the specimen: {believed.answer}")
assert verified.answer == plain.text
assert [token.id for token in believed.tokens_at(len(believed.frames) - 1)] != plain.token_ids
StepperWidget([believed, verified], labels=["with the specimen", "as it is"])

# %% [markdown]
# ## Measure it
#
# Two formats, four modes. A draft's pass reads more tokens, so it is not as cheap as a plain one: do passes and
# milliseconds fall alike on your machine? Where is nothing gained?

# %%
formats = {"city": schema, "date": Constraint.regex(r"[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")}
rows = []
for name, constraint in formats.items():
    for mode, engine in engines.items():
        one = engine.generate_one(messages=question, constraint=constraint, sampling=sampling)
        rows.append((name, mode, one.counts["forward_passes"], f"{one.counts['accepted']}/{one.counts['drafted']}",
                     one.counts["forced"], one.ms["total"] - one.ms["compile"]))
Table(["format", "mode", "passes", "accepted/drafted", "forced", "ms"], rows)

# %% [markdown]
# ## Test yourself
#
# <details><summary>1. Can a draft change an answer?</summary>
#
# No. At each position a token is sampled as ever, under the mask of that position; a draft counts only where it is that
# token. Greedy or not, the answer is that of `none` (bit for bit in exact mode).
# </details>
#
# <details><summary>2. What does <code>force</code> change?</summary>
#
# The ids, and so what the model reads from there on. It restores the usual spelling of forced text, which the mask had
# lost. Later free parts may come out differently, for better or worse: measure it on your task.
# </details>
#
# <details><summary>3. Why hold back an end?</summary>
#
# Because ids that were emitted stay. If the last piece may be part of a longer token, writing it now forbids that
# token.
# </details>
#
# <details><summary>4. And the overlapped loop?</summary>
#
# What is forced is known after the grammar has accepted the newest token, and the next pass reads it. So the gate is
# shut in such steps (06).
# </details>
#
# ## How to say it in an interview
#
# > "You can have jump-forward back without touching the scheduler by treating forced text as a perfect draft: append it
# > to the decode row, verify under the grammar's masks, accept what the masked model would have sampled. It is lossless
# > and saves passes. Forcing instead skips the sampling and restores canonical tokenization, which full masks destroy;
# > then you have to hold back the end of the run, since the boundary token may merge with what follows."
#
# ## The commits
#
# - [`935cda944b`](https://github.com/sgl-project/sglang/commit/935cda944b82d4828e9efb6606cd449afa4cd71c) (2025-03-03, #4032): jump-forward leaves the scheduler.
# - [`6350042696`](https://github.com/sgl-project/sglang/commit/6350042696aa75a7ae1b4707a908ecbafa40015d) (2025-11-27, #13425): grammars with the second speculative loop, and an end to the bug of row 53.
# - [`578b119bc6`](https://github.com/sgl-project/sglang/commit/578b119bc66746d096a14917245af93c503674a1) (2026-01-31, #17585): n-gram drafts with a grammar.
# - [`b4616dcbf5`](https://github.com/sgl-project/sglang/commit/b4616dcbf54305fab69a0537ba481b7aa05a1418) (2026-04-15, #21723): the end is tested after each accepted token.
# - [`9bb9d17e1a`](https://github.com/sgl-project/sglang/commit/9bb9d17e1ab26d50b91e5672b7ffcac800faafc7) (2026-06-19, #28682): what is booked is what was emitted.
