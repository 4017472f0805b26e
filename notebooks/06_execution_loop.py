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
# # 06 The execution loop
#
# A step has work for two: the model computes a pass, and the CPU fills masks, shows tokens to grammars and writes text.
# An overlapped loop does both at once. A grammar makes that hard, since the mask of a step depends on the token of the
# step before. This notebook reads the order of events from a trace.
#
# **Can you answer these? Then skip to 07.**
#
# 1. Which part of step n+1 may start before the results of step n are processed, and which may not?
# 2. What is the *gate*, and what shuts it?
# 3. Why is the packed mask sent to the device in one piece, and which rows are reset?
# 4. Several ranks share a model. What must they agree on when a batch has a grammar?

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
from jumpforward.notebook import Table, Tokens
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageOptions
from shared_runtime.sampling_params import SamplingParams

patient = GrammarLimits(compile_timeout=120.0)  # a busy machine shall not decide
date = Constraint.regex(r"[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
question = [{"role": "user", "content": "When did people first land on the Moon? Answer with the date alone."}]
loaded = None


def traced(overlap, **options):
    """Run the request on stage 5; its result and the records of the turns that ran a pass."""
    global loaded
    engine = Engine(EngineConfig(stage=5, backend="xgrammar", overlap=overlap, trace=True, limits=patient,
                                 options=StageOptions(**options)), loaded=loaded)
    loaded = engine.parts.loaded
    engine.add_request(messages=question, constraint=date, sampling=SamplingParams(max_new_tokens=12))
    records, result = [], None
    while result is None:
        record = engine.step()
        records += [record] if record.requests else []  # the other turns wait for the compile
        result = next((event.result for event in engine.take_events() if event.result), None)
    return result, records, engine.tokenizer.vocabulary


# %% [markdown]
# ## Four events a step
#
# `launch`: the pass starts. `mask_ready`: the grammar's mask is on the logits. `sampled`: the token is chosen.
# `results_processed`: grammar, text and finish are up to date. Their numbers are one sequence over the whole run.
#
# **Predict.** Without overlap the order is launch, mask_ready, sampled, results_processed, step by step. With overlap:
# where does `launch` of step n+1 move to? Can it stand before `sampled` of step n?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# In this loop it stands behind `sampled(n)` and in front of `results_processed(n)`: the pass needs the token, and does
# not need the grammar. Only the mask does. So the CPU processes the results while the model computes, then fills the
# mask, and only then the new pass is sampled. (Stage 4's loop launches still earlier, before the token is known.)
# </details>

# %%
plain, plain_records, vocabulary = traced(False)
over, over_records, _ = traced(True)


def order(records, steps=4):
    """The events of the first steps in the order in which they came, as name(pass)."""
    number = {record.step: place for place, record in enumerate(records)}
    events = sorted((event for record in records for event in record.events), key=lambda event: event.seq)
    return [f"{event.name}({number[event.step]})" for event in events if number[event.step] < steps]


Table(["place", "without overlap", "with overlap"],
      [(place, *pair) for place, pair in enumerate(zip(order(plain_records), order(over_records), strict=True))])

# %%
got = order(over_records)
for step in range(1, 4):
    assert (got.index(f"launch({step})") < got.index(f"results_processed({step - 1})")
            < got.index(f"mask_ready({step})") < got.index(f"sampled({step})"))
assert over.token_ids == plain.token_ids
Tokens.of(vocabulary, over.token_ids, title="the same tokens in both")

# %% [markdown]
# This order is a contract: `launch(n+1) < results_processed(n) < mask_ready(n+1) < sampled(n+1)`. If the mask were filled
# before the results of step n were processed, it would be the mask of the step before.
#
# ## The gate
#
# Sometimes the next pass must not be launched early, because what it is to *read* depends on the results. Then the gate
# is shut for this round, and the trace says why.
#
# **Predict.** We let the backend propose forced text as a draft (07). Where will the gate be shut?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# At every decode step (as `backend_jump`, or as `drafts` where the pass before verifies some): what is forced is known
# when the grammar has accepted the last token, and it is part of what the next pass reads. Upstream's own gate is the same thought for speculation: with drafts, a grammar, a
# decode batch and a result that waits, overlap is off for the round.
# </details>

# %%
drafted, drafted_records, _ = traced(True, backend_jump="draft")
rows = [(name, place, "".join("stop" if token.id in vocabulary.stop_ids else token.text
                             for one in record.requests for token in one.tokens),
         "yes" if record.overlap.on else "no", record.overlap.gate_reason or "")
        for name, records in (("plain", over_records), ("drafts", drafted_records))
        for place, record in enumerate(records)]
Table(["run", "pass", "tokens", "next pass launched early", "why not"], rows)

# %%
assert {row[4] for row in rows if row[0] == "plain" and row[3] == "no"} <= {"nothing_to_run"}
assert "backend_jump" in {row[4] for row in rows if row[0] == "drafts"}
assert drafted.token_ids == plain.token_ids

# %% [markdown]
# ## "Is it the grammar, or the loop?"
#
# When a constrained server is slow, look at these fields of a step, in this order: is there a grammar at all; how many
# rows were filled; did the ranks synchronise tokens; was overlap on, and if not, why; what came of drafts. Only what is
# left then is the grammar itself.

# %%
Table(["pass", "has_grammar", "rows filled", "tp_token_sync", "overlap", "drafted/accepted", "constrain, ms", "forward, ms"],
      [(place, record.has_grammar, len(record.grammars_filled), record.tp_token_sync,
        record.overlap.gate_reason or record.overlap.on, f"{record.spec.drafted}/{record.spec.accepted}",
        record.ms.get("constrain", 0.0), record.ms.get("forward", 0.0)) for place, record in enumerate(drafted_records)])

# %% [markdown]
# ## One mask for the batch
#
# Stage 1 made a mask a request, in a Python loop. Stage 5 fills one packed buffer for the batch, moves it once and
# applies it with one kernel. The buffer is kept from step to step, so every row is set to ones before each filling:
# museum row 61 is what happens otherwise. Here is the naive loop beside the real one, bit for bit:

# %%
import torch

from stages.stage5_backend_jump.utils import apply_bitmask

logits = torch.randn(3, vocabulary.width)
bits = torch.randint(-2**31, 2**31 - 1, (3, (vocabulary.width + 31) // 32), dtype=torch.int32)
fast = logits.clone()
apply_bitmask(fast, bits, [0, 1, 2])
slow = logits.clone()
for row in range(3):
    for token in range(vocabulary.width):
        if not int(bits[row, token // 32]) >> token % 32 & 1:
            slow[row, token] = -torch.inf
assert torch.equal(fast, slow)
print("the kernel and the loop agree on", fast.numel(), "logits")

# %% [markdown]
# ## Several ranks
#
# With tensor parallelism each rank has a part of the model, and all of them run this loop. They must agree on which
# grammars are ready or failed (as *sets*: counts cannot name requests), and, whenever a batch has a grammar, on the sampled
# token: one rounding difference, and two ranks are in different states of the grammar for ever. `docs/ranks.md` runs it
# on three ranks.
#
# ## The stepper
#
# `o` jumps to the next turn with overlap, `g` to the next shut gate, and "What happened" says why it was shut. Look at
# "Order of events". The third button is the run with drafts.

# %%
from jumpforward.stepper.recording import record
from jumpforward.stepper.widget import StepperWidget

StepperWidget([record(EngineConfig(stage=5, overlap=overlap, limits=patient, options=StageOptions(backend_jump=mode)),
                      None, messages=question, constraint=date, sampling=SamplingParams(max_new_tokens=12))
               for overlap, mode in ((True, "none"), (False, "none"), (True, "draft"))])

# %% [markdown]
# ## Break it
#
# Row 38: the mask of step n+1 is made before the token of step n was accepted. Row 39: a request stays one step longer
# in an overlapped batch, and its grammar, which has ended, is asked for a mask. Row 61: a free row keeps old bits.

# %%
from tests.museum.__main__ import main as museum

assert museum(["38", "39", "61"]) == 0

# %% [markdown]
# **Predict.** Row 38 in stage 4's overlapped loop, on the date. The first digit comes out right. What then?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Every token is chosen under the mask of the place before. As long as two places allow the same (digits and digits),
# nothing is seen. Where a dash must come the mask still says digits; the grammar refuses the digit, and the request ends
# with an error. Without that check it would be an answer that matches nothing.
# </details>

# %%
from tests.museum.exhibits import specimen

with specimen(38):
    late = record(EngineConfig(stage=4, backend="xgrammar", overlap=True, limits=patient), None, messages=question,
                  constraint=date, sampling=SamplingParams(max_new_tokens=12))
print(late.answer, "|", late.frames[-1].says[-1])
assert late.frames[-1].finish == "error"
StepperWidget(late)

# %% [markdown]
# ## Measure it
#
# What does overlap bring *here*? On a CPU the model and the masks want the same cores, so expect little; on a GPU the
# model computes elsewhere. Four requests together, a mask for each.

# %%
import time

rows = []
for overlap in (False, True):
    engine = Engine(EngineConfig(stage=5, overlap=overlap, limits=patient), loaded=loaded)
    engine.generate(["Hello"], constraint=date, sampling=SamplingParams(max_new_tokens=2))  # compile, warm up
    started = time.perf_counter()
    results = engine.generate([f"The date {number} is" for number in range(4)], constraint=date,
                              sampling=SamplingParams(max_new_tokens=12))
    rows.append(("on" if overlap else "off", 1e3 * (time.perf_counter() - started),
                 sum(one.ms["mask_per_step"] for one in results) / len(results)))
Table(["overlap", "ms for four requests", "mask, ms a row"], rows)

# %% [markdown]
# ## Test yourself
#
# <details><summary>1. What may start early?</summary>
#
# The forward pass: it needs the token ids, not the grammar. Filling the mask needs the grammar's state behind the last
# token, and sampling needs the mask.
# </details>
#
# <details><summary>2. What shuts the gate?</summary>
#
# Anything that makes the *input* of the next pass depend on results that are not processed: drafts with a grammar,
# forced text from a backend, a retraction that depends on who has ended.
# </details>
#
# <details><summary>3. Why one piece, and which rows of a kept mask are reset?</summary>
#
# A copy to the device has a price of its own, whatever its size: one for the batch is cheaper than one a row, and one
# kernel then applies all rows. All rows are reset, to ones, before each filling. A row that nobody fills belongs to a free request and forbids nothing.
# </details>
#
# <details><summary>4. What must ranks agree on?</summary>
#
# Which grammars are ready or failed, whether a constraint was in the cache, and the sampled token. Each was got wrong at
# least once upstream.
# </details>
#
# ## How to say it in an interview
#
# > "With overlap the GPU computes pass n+1 while the CPU post-processes pass n. A grammar breaks the symmetry: the forward
# > of n+1 only needs token n, but its mask needs the matcher to have accepted token n. So sampling is delayed: launch,
# > process results, fill the mask, then sample. Where even the input depends on the results, as with speculative drafts,
# > you shut the gate for that round. To debug I check, in order: has_grammar, rows filled, token sync, gate reason, drafts; only then the
# > grammar."
#
# ## The commits
#
# - [`ffd20fcd03`](https://github.com/sgl-project/sglang/commit/ffd20fcd037fa2815c6a5dd8fa165200f7649d0d) (2024-11-19, #2095): masks in the overlapped loop, by an event; jumping off.
# - [`022614d26e`](https://github.com/sgl-project/sglang/commit/022614d26e25cbd963d3bd2706582198943a44ee) (2025-01-22, #3060): ranks agree on sampled ids whenever there is a grammar.
# - [`bfadb5ea5f`](https://github.com/sgl-project/sglang/commit/bfadb5ea5fbd7197d72d517da8885433ef190953) (2025-10-14, #11507): delayed sampling.
# - [`6350042696`](https://github.com/sgl-project/sglang/commit/6350042696aa75a7ae1b4707a908ecbafa40015d) (2025-11-27, #13425): the gate for grammars with speculation.
# - [`e7dc85c50b`](https://github.com/sgl-project/sglang/commit/e7dc85c50baf434fcd5faeee30a4e1d0cd9ddaed) (2026-01-15, #17100): ranks exchange sets.
# - [`8a9f2aa116`](https://github.com/sgl-project/sglang/commit/8a9f2aa116b26067620bdfd2d2e4cf9c22d5873a) (2026-06-13, #23653): rows of a kept mask are reset.
