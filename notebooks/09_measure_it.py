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
# # 09 Measure it yourself
#
# "Jump-forward is three times as fast." On what, against what, and is it the machine that says so? This notebook measures
# a little and doubts a lot. What it shows depends on your machine; the habits do not.
#
# **Can you answer these? Then you are done.**
#
# 1. Which figures of a run do not depend on the machine? Why look at them first?
# 2. You measured a gain of 5 %. How do you know that it is one?
# 3. Two decoders give different tokens for the same text. What do you divide by?
# 4. How fast could a pass be at best, and how near are you?

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
import time

from jumpforward.notebook import Table
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageOptions
from shared_runtime.sampling_params import SamplingParams

patient = GrammarLimits(compile_timeout=120.0)  # a busy machine shall not decide
question = [{"role": "user", "content": "Tell me about the capital of France, as JSON."}]
card = Constraint.regex(r'\{"city": "[A-Za-z ]{1,12}", "country": "(France|Spain|Italy)"\}')
sampling = SamplingParams(max_new_tokens=32)
engines = {}


def engine_of(name, **settings):
    """An engine under a name; all share one model in memory."""
    if name not in engines:
        share = next(iter(engines.values())).parts.loaded if engines else None
        engines[name] = Engine(EngineConfig(limits=patient, **settings), loaded=share)
    return engines[name]


settings = {"stage 1": {"stage": 1}, "stage 2": {"stage": 2}, "stage 4": {"stage": 4, "backend": "xgrammar"},
            "stage 5": {"stage": 5}, "stage 5 + force": {"stage": 5, "options": StageOptions(backend_jump="force")}}

# %% [markdown]
# ## Count first
#
# Passes, masks and tokens are the same on every machine. If they do not move, a faster time needs another explanation.
#
# **Predict.** For this card, order the five decoders by passes. Do fewer passes always mean fewer tokens?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Stage 1 and plain stage 5 pay a pass a token; jumps and forced text pay one a *sampled* token. The number of tokens
# differs less: only where a mask split a forced word.
# </details>

# %%
results = {name: engine_of(name, **one).generate_one(messages=question, constraint=card, sampling=sampling)
           for name, one in settings.items()}
Table(["decoder", "passes", "tokens", "masks", "characters"],
      [(name, one.counts["forward_passes"], len(one.token_ids), one.counts["masks"], len(one.text))
       for name, one in results.items()])

# %%
assert results["stage 2"].counts["forward_passes"] < results["stage 1"].counts["forward_passes"]
assert results["stage 1"].counts["forward_passes"] == len(results["stage 1"].token_ids)

# %% [markdown]
# ## Noise: measure the same thing twice
#
# An *A/A test*: two engines with equal settings. Whatever they differ by is what your machine adds. A gain smaller than
# that is none.
#
# **Predict.** How far will the medians of two equal engines lie apart?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# That is up to your machine, and the point of the test. On a quiet one it is a percent or two, beside other work ten or
# more. Interleaving (A, B, A, B) spreads a slow minute over both; measuring all of A and then all of B does not.
# </details>

# %%
def timed(engine):
    """Milliseconds of a run without its compile."""
    one = engine.generate_one(messages=question, constraint=card, sampling=sampling)
    return one.ms["total"] - one.ms["compile"]


def median(values):
    """The middle one."""
    return sorted(values)[len(values) // 2]


a, b, c = engine_of("stage 1"), engine_of("stage 1 again", stage=1), engine_of("stage 2")
for engine in (a, b, c):
    timed(engine)  # the first run of an engine is slower: nothing is warm, and nothing in the cache
times = {"A": [], "A again": [], "B": []}
for _ in range(5):
    for name, engine in zip(times, (a, b, c), strict=True):
        times[name].append(timed(engine))
Table(["engine", "median, ms", "fastest", "slowest"],
      [(name, median(found), min(found), max(found)) for name, found in times.items()])

# %%
noise = abs(median(times["A"]) / median(times["A again"]) - 1)
gain = median(times["A"]) / median(times["B"])
print(f"two equal engines differ by {100 * noise:.1f} %; stage 1 takes {gain:.2f} times as long as stage 2")
print("passes say:", f"{results['stage 1'].counts['forward_passes'] / results['stage 2'].counts['forward_passes']:.2f}")

# %% [markdown]
# Expect the two to be near each other, and not equal: the pass that reads a prompt, or a forced text, reads more tokens
# than one and is dearer, and what the first line calls noise is in both medians.
#
# ## What to divide by
#
# Tokens per second is unfair between decoders that spell differently: who needs more tokens for the same text looks
# faster. Divide by what the user gets.

# %%
again = {name: engine_of(name).generate_one(messages=question, constraint=card, sampling=sampling) for name in settings}
Table(["decoder", "tokens a second", "characters a second"],
      [(name, 1e3 * len(one.token_ids) / (one.ms["total"] - one.ms["compile"]),
        1e3 * len(one.text) / (one.ms["total"] - one.ms["compile"])) for name, one in again.items()])

# %% [markdown]
# ## How fast could it be?
#
# Decoding one request reads every weight once a pass. So a pass cannot be faster than reading the weights from memory.
# We measure both.
#
# **Predict.** What share of the machine's memory bandwidth does a decode pass reach?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Usually a good part of it in fp32 with one row: the work is a matrix times a vector, and waits for memory. If the share is
# small, the time goes elsewhere (Python, many small calls, a busy machine), and a faster kernel would not help.
# </details>

# %%
import math

import torch

from shared_runtime.model.weights import expected_shapes

weights = 4 * sum(math.prod(shape) for shape in expected_shapes(a.parts.model).values())  # 4 bytes each in fp32
long = a.generate_one("Once upon a time", sampling=SamplingParams(max_new_tokens=16, ignore_eos=True))
pass_s = long.metrics.tpot_s
block = torch.ones(64 << 20)  # 256 MB
block.sum()
started = time.perf_counter()
for _ in range(4):
    block.sum()
bandwidth = 4 * block.numel() * block.element_size() / (time.perf_counter() - started)
print(f"weights {weights / 1e6:.0f} MB; a pass {1e3 * pass_s:.0f} ms; so {weights / pass_s / 1e9:.1f} GB/s of "
      f"{bandwidth / 1e9:.1f} GB/s that this core reads")

# %% [markdown]
# ## Where does the time go?

# %%
traced = Engine(EngineConfig(stage=5, limits=patient, trace=True, overlap=False), loaded=a.parts.loaded)
traced.add_request(messages=question, constraint=card, sampling=sampling)
phases = {}
while traced.has_work:
    turn = traced.step()
    for phase, ms in turn.ms.items():
        if turn.requests:
            phases[phase] = phases.get(phase, 0.0) + ms
traced.take_events()
whole = sum(phases.values())
Table(["phase of the loop", "ms", "%"], [(phase, ms, 100 * ms / whole) for phase, ms in sorted(
    phases.items(), key=lambda pair: -pair[1])])

# %% [markdown]
# ## The stepper
#
# Every turn has its milliseconds by phase, in the last pane. Recording costs time itself: never take a speed from a traced run.

# %%
from jumpforward.stepper.recording import record
from jumpforward.stepper.widget import StepperWidget

StepperWidget([record(EngineConfig(stage=stage, limits=patient), None, messages=question, constraint=card,
                      sampling=sampling) for stage in (1, 2)])

# %% [markdown]
# ## Break it
#
# Metrics have bugs too, and nobody's answer looks wrong. Row 10: sampled and jumped tokens were one number. Row 11: a hit
# rate of nine. Row 42: statistics that fail for one of two ways into a queue.

# %%
from tests.museum.__main__ import main as museum

assert museum(["10", "11", "42"]) == 0

# %% [markdown]
# ## Measure it
#
# Your turn. Put in a prompt and a format of your own, and say before you run it: by how much do *passes* fall, and by how
# much time? `jumpforward doctor --measure` finds the fastest `--dtype` and `--threads` of your machine, and
# `jumpforward compare` sets all stages side by side.

# %%
MY_QUESTION = "Name a ship and its rig."
MY_FORMAT = Constraint.regex(r"Name: [A-Z][a-z]{2,9}, rig: (sloop|schooner|brigantine)\.")
rows = []
for name, one in settings.items():
    mine = engine_of(name, **one).generate_one(messages=[{"role": "user", "content": MY_QUESTION}], constraint=MY_FORMAT,
                                               sampling=sampling)
    rows.append((name, mine.text, mine.counts["forward_passes"], mine.ms["compile"],
                 mine.ms["total"] - mine.ms["compile"]))
Table(["decoder", "answer", "passes", "compile, ms", "run, ms"], rows)

# %% [markdown]
# Look at the answers, too. Where they differ, the decoders did different work: a jump changes ids, and the model may go on
# in another way from there. Then compare over many requests, and check quality beside speed.
#
# ## Test yourself
#
# <details><summary>1. Why count before you time?</summary>
#
# Counts are exact and the same everywhere. They say what *should* move, and they expose a time that moved for another
# reason.
# </details>
#
# <details><summary>2. When is 5 % a gain?</summary>
#
# When two equal engines, measured interleaved in the same way, differ by clearly less; and when you say how often you
# looked.
# </details>
#
# <details><summary>3. What do you divide by?</summary>
#
# By what the user gets (requests, characters, correct answers), not by tokens, if the decoders tokenize differently.
# </details>
#
# <details><summary>4. What must a reported speed-up name?</summary>
#
# Workload, baseline with its settings, machine, versions, batch size, warm or cold caches, and where it loses. Compile
# time apart: a new grammar in each request is another workload than one grammar for all.
# </details>
#
# ## How to say it in an interview
#
# > "I start from counts: passes, masks, tokens. Then an A/A test for the noise, interleaved runs, medians, warm caches
# > stated. I put the bound beside the figure: bytes of weights over bandwidth for single-row decode. For constrained
# > decoding I split compile, mask and forward, since they scale with different things, and I normalise by text, because
# > jump-forward changes the tokens themselves."
#
# ## The commits
#
# - [`63ba630bbb`](https://github.com/sgl-project/sglang/commit/63ba630bbbb2d55787ac54ac0a01cbde993afc20) (2024-02-15, #189): sampled tokens are counted apart from jumped ones.
# - [`4d303c4fa3`](https://github.com/sgl-project/sglang/commit/4d303c4fa365dbe8b4d474be6e613954bb829939) (2024-02-09, #174): a prompt's length is what came in.
# - [`71b54eea7d`](https://github.com/sgl-project/sglang/commit/71b54eea7d21a2bb1d8ef340e7002983a29b1d5f) (2024-01-30, #119) and [`cba5027332`](https://github.com/sgl-project/sglang/commit/cba50273324e9770c587754a4abbea974a4124ba) (2024-02-08, #170): cache metrics, and their first bug.
# - [`28b26dbf48`](https://github.com/sgl-project/sglang/commit/28b26dbf489bc666c66c2229c905e4fc49285ad5) (2025-04-29, #5696): every request in a queue has a start time.
