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
# # 04 Backends
#
# In October 2024 a second library came in beside Outlines, eighteen days later an interface between them, in February
# 2025 a third. This notebook puts the three behind one interface, asks all of them the same question, and looks at what
# moved out of the loop: compiling.
#
# **Can you answer these? Then skip to 05.**
#
# 1. Which four or five calls does a scheduler need from a grammar library?
# 2. What can a pushdown automaton hold that a regex cannot? What does it pay per step?
# 3. Three libraries, one grammar, one prefix: do they allow the same tokens?
# 4. A grammar takes a second to compile. What do the other requests do meanwhile?

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
# ## One interface
#
# A *backend* compiles; a *grammar object* is one request's place in what was compiled. The scheduler knows these calls
# and no library:

# %%
import inspect

from stages.stage4_backends.base_grammar_backend import BaseGrammarObject

for name in ("accept_token", "rollback", "copy", "is_terminated", "fill_vocab_mask", "try_jump_forward",
             "jump_and_retokenize"):
    print(f"{name:<20}", (inspect.getdoc(getattr(BaseGrammarObject, name)) or "").splitlines()[0])

# %%
from contextlib import nullcontext

import torch

from jumpforward.notebook import Table
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.sampling_params import SamplingParams

patient = GrammarLimits(compile_timeout=120.0)  # a busy machine shall not decide
engines = {}
for name in ("outlines", "xgrammar", "llguidance"):
    loaded = next(iter(engines.values())).parts.loaded if engines else None
    engines[name] = Engine(EngineConfig(stage=4, backend=name, limits=patient, trace=True), loaded=loaded)
tokenizer = engines["xgrammar"].tokenizer
vocabulary = tokenizer.vocabulary

# %% [markdown]
# ## A mask is 1,536 words
#
# All three write a packed mask: one bit a token, 32 tokens in an int32, one row a request.

# %%
def place(name, constraint, text=""):
    """A grammar of a backend, behind a text."""
    grammar = engines[name].parts.policy.backend.init_value(constraint).grammar.copy()
    for token in tokenizer.spell(text):
        assert grammar.accept_token(token)
    return grammar


def allowed(grammar):
    """The ids that may come next, read from the bits."""
    mask = grammar.allocate_vocab_mask(vocabulary.width, 1, torch.device("cpu"))
    grammar.fill_vocab_mask(mask, 0)
    bits = (mask[0].unsqueeze(-1) >> torch.arange(32)) & 1
    return bits.flatten()[:vocabulary.width].nonzero().flatten().tolist()


mask = place("xgrammar", Constraint.choice(["yes"])).allocate_vocab_mask(vocabulary.width, 1, torch.device("cpu"))
print(f"{vocabulary.width:,} tokens, {mask.shape[1]:,} words of 32 bits: {mask.nbytes:,} bytes a row")
assert mask.shape[1] == (vocabulary.width + 31) // 32

# %% [markdown]
# ## The same question to all three
#
# **Predict.** The pattern is `(Paris|Rome) is( the capital)?`. Which tokens may come first, behind `Paris`, and behind
# `Paris is`? Will the three agree?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# At the start and at the end they do. Behind `Paris` the text ` is` is forced, and there llguidance allows only the
# tokenizer's own spelling of it, while the others allow every one. Both are masks of the same *language*. So "mask A
# equals mask B" is no test across libraries, and a claim about masks must name its backend.
# </details>

# %%
capital = Constraint.regex("(Paris|Rome) is( the capital)?")
rows = []
for text in ("", "Paris", "Paris is"):
    for name in engines:
        grammar = place(name, capital, text)
        helper = grammar.try_jump_forward()
        rows.append((repr(text), name, ", ".join(repr(vocabulary.token_bytes[one].decode()) if one not in
                     vocabulary.stop_ids else "stop" for one in allowed(grammar)), helper and repr(helper.text)))
Table(["behind", "backend", "allowed", "forced"], rows)

# %%
assert allowed(place("outlines", capital, "Paris")) == allowed(place("xgrammar", capital, "Paris"))
assert set(allowed(place("llguidance", capital, "Paris"))) < set(allowed(place("xgrammar", capital, "Paris")))

# %% [markdown]
# ## What a stack buys
#
# A node has children, which are nodes. No regex can hold that, whatever its length.

# %%
tree = Constraint.json_schema({
    "$defs": {"node": {"type": "object", "required": ["name", "children"], "additionalProperties": False, "properties": {
        "name": {"type": "string", "maxLength": 8},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}}}}, "$ref": "#/$defs/node"})
family = [{"role": "user", "content": "Draw a family tree as JSON."}]
rows = []
for name, engine in engines.items():
    one = engine.generate(messages=[family], constraint=tree, sampling=SamplingParams(max_new_tokens=24))[0]
    rows.append((name, one.finish_reason, one.text or str(one.error)[:110]))
Table(["backend", "ends with", "text, or why not"], rows)

# %%
assert [row[1] for row in rows] == ["error", "length", "length"]

# %% [markdown]
# `length`: the model likes to nest, and nothing tells it to come to an end. A grammar keeps the form; *whether* the
# answer ends is still up to the model and to your `max_new_tokens`.
#
# ## Compiling beside the loop
#
# As in 01: a request runs, behind its third token another arrives with a new grammar.
#
# **Predict.** What does the first request feel this time?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Its turns go on: the compile runs on a thread of a pool, and the new request waits in a queue of its own. On a machine
# with few cores the turns get somewhat longer, since the compile needs a core as well. No turn lasts as long as the
# compile.
# </details>

# %%
import time

import matplotlib.pyplot as plt

engine = engines["xgrammar"]
engine.add_request("Count: one, two,", sampling=SamplingParams(max_new_tokens=14), rid="first")
turns, new = [], None
while engine.has_work:
    if len(turns) == 3 and new is None:
        new = engine.add_request("Say something.", constraint=Constraint.regex(r"[A-Z].{0,40}\."),
                                 sampling=SamplingParams(max_new_tokens=4), rid="second")
    started = time.perf_counter()
    turn = engine.step()
    if turn.requests:  # the others only wait for a compile
        turns.append((1e3 * (time.perf_counter() - started), [one.rid for one in turn.requests], list(turn.compiling)))
second = next(event.result for event in engine.take_events() if event.rid == "second")
figure, axes = plt.subplots(figsize=(7, 2.5))
axes.bar(range(len(turns)), [ms for ms, _, _ in turns],
         color=["tab:orange" if compiling else "tab:blue" for _, _, compiling in turns])
axes.axhline(second.ms["compile"], color="black", linestyle="--")
axes.set_title("dashed: the whole compile; orange: turns beside it")
axes.set_xlabel("turn")
axes.set_ylabel("ms")
plt.show()

# %%
beside = [rids for _, rids, compiling in turns if "second" in compiling]
print(f"the first request got {len(beside)} tokens while the second one's grammar was compiled")
assert all(rids == ["first"] for rids in beside)

# %% [markdown]
# ## The stepper
#
# Jump-forward is still in the scheduler, now through three methods of the grammar object. Press `j`.

# %%
from jumpforward.stepper.recording import record
from jumpforward.stepper.widget import StepperWidget

ship = Constraint.regex(r'\{"ship": "[A-Z][a-z]{2,8}", "rig": "(sloop|schooner)"\}')
StepperWidget([record(EngineConfig(stage=4, backend=name, limits=patient), None, constraint=ship,
                      messages=[{"role": "user", "content": "Invent a sailing ship."}],
                      sampling=SamplingParams(max_new_tokens=24)) for name in ("xgrammar", "llguidance")])

# %% [markdown]
# ## Break it
#
# Row 33: from 26 October to 12 November 2024 two arguments were swapped, and the outlines backend never jumped. Nothing
# failed, it was only slower. Row 35: who waits for a build that fails waits on.

# %%
from tests.museum.__main__ import main as museum

assert museum(["33", "35"]) == 0

# %% [markdown]
# Row 33 in a whole stage, to step through: the same request, with and without the swapped arguments.
#
# **Predict.** What tells you that something is wrong: the answer, an error, or a count?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Only a count. Both answers are right and nothing fails; it takes a pass for every token, and no turn has a jump. Whoever
# looks at answers alone does not see such a bug, and it took seventeen days.
# </details>

# %%
from tests.museum.exhibits import specimen

slower = {}
for name in ("as it is", "with the specimen"):
    config = EngineConfig(stage=4, backend="outlines", limits=patient)
    asked = {"constraint": ship, "messages": [{"role": "user", "content": "Invent a sailing ship."}],
             "sampling": SamplingParams(max_new_tokens=24)}
    with specimen(33) if slower else nullcontext():
        slower[name] = record(config, None, **asked)
for name, one in slower.items():
    print(f"{name}: {one.counts['forward_passes']} passes, {one.counts['jumped']} tokens jumped: {one.answer}")
assert slower["with the specimen"].counts["jumped"] == 0 < slower["as it is"].counts["jumped"]
StepperWidget(list(slower.values())[::-1], labels=list(slower)[::-1])

# %% [markdown]
# ## Measure it
#
# Compile once, then a mask for each place in a text. The first compile of a library also pays for its import and its
# view of the vocabulary. Try your own grammar.

# %%
schema = Constraint.json_schema({"type": "object", "required": ["city", "population"], "additionalProperties": False,
                                 "properties": {"city": {"type": "string", "maxLength": 10},
                                                "population": {"type": "integer", "minimum": 1, "maximum": 999}}})
rows = []
for name in engines:
    started = time.perf_counter()
    grammar = place(name, schema)
    compiled = time.perf_counter() - started
    times = []
    for token in tokenizer.spell('{"city": "Paris", "population": 11}'):
        words = grammar.allocate_vocab_mask(vocabulary.width, 1, torch.device("cpu"))
        started = time.perf_counter()
        grammar.fill_vocab_mask(words, 0)
        times.append(time.perf_counter() - started)
        if not grammar.accept_token(token):  # llguidance takes its own spelling only
            break
    rows.append((name, 1e3 * compiled, 1e6 * sorted(times)[len(times) // 2], 1e6 * max(times), len(times)))
Table(["backend", "compile, ms", "mask, µs (median)", "mask, µs (most)", "places"], rows)

# %% [markdown]
# ## Test yourself
#
# <details><summary>1. Which calls does the scheduler need?</summary>
#
# Compile; then per request: accept a token, fill a row of a mask, ask whether it has ended, copy, roll back. Jumping
# needs "what is forced?" and "move from these ids to those".
# </details>
#
# <details><summary>2. What does a stack buy, and cost?</summary>
#
# Nesting without a bound: JSON, recursive schemas, programming languages. The state is no longer a number whose mask
# can be looked up, so a mask is computed when it is needed, over precomputed parts.
# </details>
#
# <details><summary>3. Do three libraries allow the same tokens?</summary>
#
# They should allow the same texts (where they do not, it is a deviation to be listed). The tokens may differ where text
# is forced: one library allows its canonical spelling only.
# </details>
#
# <details><summary>4. What do the others do while a grammar compiles?</summary>
#
# Decode. The request waits in a queue of its own until the future is done, and equal grammars share one compile. With
# several ranks all must agree on who is ready.
# </details>
#
# ## How to say it in an interview
#
# > "The interface is small: compile to a shared immutable grammar, per-request matcher with accept, rollback, fill a
# > packed bitmask row, and terminated. Behind it Outlines looks masks up in an index, xgrammar runs a pushdown automaton
# > with most tokens classified ahead of time, llguidance parses lazily. Compiles go to a thread pool, so a new grammar
# > costs its own request latency and nobody else a turn. Across backends I compare languages, not masks."
#
# ## The commits
#
# - [`b77a02cdfd`](https://github.com/sgl-project/sglang/commit/b77a02cdfdb4cd58be3ebc6a66d076832c309cfc) (2024-10-26, #1752): xgrammar beside Outlines, told apart by type checks.
# - [`ba069a24d3`](https://github.com/sgl-project/sglang/commit/ba069a24d3e116b37399cf3ebd295c97c49ae6fd) (2024-11-12, #2018): a module per backend. [`125b1199c5`](https://github.com/sgl-project/sglang/commit/125b1199c5858db069a98a17af8c917e35891480) (2024-11-13, #1996): the thread pool and the queue.
# - [`54479d6f30`](https://github.com/sgl-project/sglang/commit/54479d6f301c0178be1c43209d1adc1684542520) (2024-11-13, #2020): the base classes.
# - [`9c745d078e`](https://github.com/sgl-project/sglang/commit/9c745d078e29e153a64300bd07636c7c9c1c42d5) (2024-11-18, #2056): allocate, fill and apply a packed mask.
# - [`7551498a69`](https://github.com/sgl-project/sglang/commit/7551498a69b3c92a29b070c3b31088efb2ac7fb2) (2025-02-26, #3298): llguidance. [`bac414ab53`](https://github.com/sgl-project/sglang/commit/bac414ab5340b70656035adf4e61e0b616d8e6e2) (2025-02-28, #3566): structural tags.
