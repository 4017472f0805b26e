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
# # 00 From logits to masks
#
# A language model gives a number to every token of its vocabulary. A constraint forbids some of them. This notebook
# shows what lies between: how a mask gets into one step, what it does to the probabilities, and what it cannot do.
#
# **Can you answer these? Then skip to 01.**
#
# 1. A model gives 3 % to the tokens that a grammar allows. What do they have after the mask, and what of their order?
# 2. Why must the mask come last, after penalties and bias?
# 3. A model is held to one of two sentences, greedily. Is the answer the more probable of the two sentences?
# 4. Is a date that matches a regex for dates a date?

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
# ## One step, taken apart
#
# The engine below runs a real model (135 million parameters) on your CPU. Between the model and the sampler there is
# one seam, `constrain(logits, batch, positions)`: the stage gets the logits and writes minus infinity where a token is
# forbidden. We look over its shoulder and keep the logits before and after.

# %%
import torch

from jumpforward.notebook import Table, Tokens
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.sampling_params import SamplingParams

engine = Engine(EngineConfig(stage=1))
vocabulary = engine.tokenizer.vocabulary
policy = engine.parts.policy
stages_own = policy.constrain
seen = []


def look_over_its_shoulder(logits, batch, positions):
    """Do what the stage does, and keep a copy of the logits before and after."""
    before = logits.clone()
    masked_rows = stages_own(logits, batch, positions)
    seen.append((before[0], logits[0].clone()))
    return masked_rows


policy.constrain = look_over_its_shoulder
question = [{"role": "user", "content": "When did people first land on the Moon? Answer with the date alone."}]
date = Constraint.regex("(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]")
result = engine.generate_one(messages=question, constraint=date, sampling=SamplingParams(max_new_tokens=16))
Tokens.of(vocabulary, result.token_ids, title="under the constraint (19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]")

# %% [markdown]
# **Predict.** The first character must be `1` or `2`. How many of the 49,152 tokens may come first? Only those two?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Every token whose bytes can begin a match: `1`, `2`, and every longer token such as `19` or `20` *if* the vocabulary
# has one. This tokenizer splits digits one by one, so few are left. In another vocabulary there would be more: a mask
# is a fact about a pattern *and* a vocabulary.
# </details>

# %%
raw, masked = seen[0]
allowed = torch.isfinite(masked)
before, after = raw.softmax(-1), masked.softmax(-1)


def named(ids):
    """Rows of token, probability before and probability after, in percent."""
    return [(repr(vocabulary.token_bytes[one].decode("utf-8", "replace")), 100 * float(before[one]),
             100 * float(after[one])) for one in ids]


print(f"{int(allowed.sum())} of {len(allowed):,} tokens allowed; the model had given them "
      f"{100 * float(before[allowed].sum()):.2f} % of its probability")
Table(["what the model wanted", "before, %", "after, %"], named(before.topk(5).indices.tolist()))

# %%
Table(["what is allowed", "before, %", "after, %"], named(allowed.nonzero().flatten().tolist()))

# %% [markdown]
# The mask did not choose anything. It removed tokens, and softmax shared the whole probability among what was left, in
# the same proportion. That is conditioning: `p(token | allowed)`. The next cell says the same in a line of arithmetic.

# %%
by_hand = torch.where(allowed, before, 0.0) / before[allowed].sum()
assert torch.allclose(by_hand, after, atol=1e-6)
assert raw.argmax() != masked.argmax() or bool(allowed[raw.argmax()])
print("renormalised by hand and masked before softmax: the same distribution")

# %% [markdown]
# ## Every step
#
# **Predict.** In which steps did the mask have to push hardest: at the first token, at the dashes, at the end?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# At the dashes and at the end, where almost nothing was left, and then at the first token. The model would have begun a
# sentence; after `1969` it would have ended it. Every digit of the year was its own. A low bar says: prompt and grammar
# disagree here.
# </details>

# %%
import matplotlib.pyplot as plt

mass = [100 * float(one.softmax(-1)[torch.isfinite(two)].sum()) for one, two in seen]
labels = [vocabulary.token_bytes[one].decode() or "stop" for one in result.token_ids]
figure, axes = plt.subplots(figsize=(7, 2.5))
axes.bar(range(len(mass)), mass)
axes.set_xticks(range(len(mass)), labels)
axes.set_ylabel("% kept")
axes.set_xlabel("token that was chosen in the step")
axes.set_title("How much of its probability the model had on allowed tokens")
plt.show()
hardest = sorted(range(len(mass)), key=mass.__getitem__)[:3]
print("least was left for:", [labels[step] for step in sorted(hardest)])

# %% [markdown]
# ## The form, not the truth
#
# Look at the date again. It matches its pattern in full. Is it a date?

# %%
import datetime
import re

text = result.text
assert re.fullmatch(date.source, text)
try:
    print(text, "is a day:", datetime.date.fromisoformat(text).strftime("%d %B %Y"))
except ValueError as error:
    print(text, "matches the pattern, and is no day:", error)

# %% [markdown]
# A mask knows the language you wrote down, and nothing else. `[01][0-9]` allows month 19. Write `(0[1-9]|1[0-2])` and it
# cannot come. Whatever you still want to hold (is it the *right* day?) has to be checked after the fact.
#
# ## Greedy is short-sighted
#
# A mask looks one token ahead. The model is held to one of two answers, and we let it take the most probable allowed
# token in each step.
#
# **Predict.** "The sky is ..." with the two answers " blue" and " the limit of pigs". Which one comes?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# In the first step the choice is between ` blue` and ` the`. Many sentences go on with ` the`, so it wins. After that
# the mask leaves only one way, and the model is led through words that it finds all but impossible.
# </details>

# %%
prompt, answers = "The sky is", [" blue", " the limit of pigs"]
chosen = engine.generate_one(prompt, constraint=Constraint.choice(answers), sampling=SamplingParams(max_new_tokens=8))
rows = []
for answer in answers:
    scored = engine.generate_one(prompt + answer, sampling=SamplingParams(max_new_tokens=1, prompt_logprobs=True))
    own = scored.prompt_logprobs[len(engine.tokenizer.encode(prompt)) - 1:]  # the first prompt token has no score
    rows.append((answer, f"{own[0].logprob:.1f}", f"{sum(one.logprob for one in own):.1f}",
                 "chosen" if answer == chosen.text else ""))
Table(["answer", "log p of its first token", "log p of the whole answer", ""], rows)

# %%
first, whole = ([float(row[column]) for row in rows] for column in (1, 2))
assert rows[first.index(max(first))][3] == "chosen"
assert first.index(max(first)) != whole.index(max(whole)), "here the greedy answer is the less probable one"

# %% [markdown]
# So masked decoding is **not** sampling from `p(answer | answer is in the language)`. Each step is conditioned on what
# is allowed *next*, not on what becomes of it. Beam search, or scoring each choice as a whole, would differ here.
#
# ## The stepper: the same, turn by turn
#
# Arrow keys or the slider go through the turns; `m` jumps to the next mask. "Allowed tokens" has what the model
# wanted, and what was left of it.

# %%
from jumpforward.stepper.recording import record
from jumpforward.stepper.widget import StepperWidget

recording = record(EngineConfig(stage=1), None, messages=question, constraint=date,
                   sampling=SamplingParams(max_new_tokens=16))
StepperWidget(recording)

# %% [markdown]
# ## Break it
#
# In one batch some requests have a constraint and some have none. From 21 August to 1 September 2024 a new row of
# the mask was all zero, and zero meant "forbidden". Museum row 25 puts that back, into a part and into a whole stage:

# %%
from tests.museum.__main__ import main as museum

assert museum(["25"]) == 0

# %% [markdown]
# `specimen` is the wrong part; the lines below it are the real parts of each stage, held to the same rule. The repair
# turned the meaning of the bit round, so that what nobody writes means "allowed".
#
# ## Measure it
#
# What does a mask cost, beside the pass through the model that it belongs to? Change the patterns and run again.

# %%
policy.constrain = stages_own
rows = []
for pattern in ("[0-9]{12}", "[a-z ]{12}", ".{12}"):
    measured = engine.generate_one(messages=question, constraint=Constraint.regex(pattern),
                                   sampling=SamplingParams(max_new_tokens=12))
    passes, masks = measured.counts["forward_passes"], measured.ms["mask_per_step"]
    rows.append((pattern, measured.ms["compile"], masks * 1000,
                 (measured.ms["total"] - measured.ms["compile"]) / passes))
Table(["pattern", "compile, ms", "mask, µs a step", "whole step, ms"], rows)

# %% [markdown]
# On a CPU with this model the mask is lost beside the pass. On a GPU a pass takes a few milliseconds and serves a
# hundred requests, and a mask is computed for each of them on the CPU: there it is what you wait for. That is why the
# later stages fill masks in a batch (04) and while the GPU works (06).
#
# ## Test yourself
#
# <details><summary>1. 3 % of the probability is on allowed tokens. What have they after the mask?</summary>
#
# All of it, 100 %, in the proportion they had among themselves. Their order does not change.
# </details>
#
# <details><summary>2. Why is the mask applied last?</summary>
#
# A bias or a penalty that is added afterwards could lift a forbidden token (adding to minus infinity stays minus
# infinity, but setting or clamping does not), and top-k before the mask could leave no allowed token at all.
# </details>
#
# <details><summary>3. Temperature 0, two allowed sentences. Does the more probable sentence come?</summary>
#
# Not always: the first token decides, and it is chosen without a look at what the language forces behind it.
# </details>
#
# <details><summary>4. What does a constraint guarantee?</summary>
#
# That a finished answer is in the language. Not that it is true, not that it is what the model would have said, and not
# that it is finished: `max_new_tokens` can cut it off.
# </details>
#
# ## How to say it in an interview
#
# > "Constrained decoding changes the sampling step only. A grammar, compiled against the vocabulary, says per state
# > which tokens keep the text completable; the others get minus infinity before softmax, after penalties and bias. It
# > is exact for the form and local in probability: each step is conditioned on the next token being allowed, which is
# > not the model's distribution over the whole language. So I check meaning separately, and I watch the removed mass:
# > when it is large in every step, prompt and grammar disagree."
#
# ## The commits
#
# - [`22085081bb`](https://github.com/sgl-project/sglang/commit/22085081bb247cc57fe971c3d72eb66f053d77b6) (2024-01-08): the first release; the mask is made inside `Batch.sample`, one request after the other.
# - [`83e23c69b3`](https://github.com/sgl-project/sglang/commit/83e23c69b35ce26857ee415b243812973fdb9573) (2024-08-21, #1168): the mask moves to `SamplingBatchInfo`; a new row is all zero, and zero is forbidden.
# - [`47f20da223`](https://github.com/sgl-project/sglang/commit/47f20da223c62473577231cec49dedb86c56220f) (2024-09-01, #1296): the bit means "forbidden" from here on, so a free row is left alone.
# - [`fbb4754cb8`](https://github.com/sgl-project/sglang/commit/fbb4754cb8c6585763ab631231508e84e6c287e2) (2024-09-10, #1376): the mask is made when the forward pass runs, for the batch that runs.
