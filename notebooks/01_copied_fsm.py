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
# # 01 The copied FSM
#
# SGLang's first release (January 2024) can hold an answer to a regex. It does so with an *index*: the regex becomes an
# automaton, and the automaton is walked once with every token of the vocabulary. After that a step costs one look-up.
#
# **Can you answer these? Then skip to 02.**
#
# 1. Why is the regex compiled against the vocabulary, and not tried on the text in every step?
# 2. When may the stop token come? What goes wrong if the answer is "when nothing else may"?
# 3. What does building the index cost, in states and tokens? What does it cost the other requests?
# 4. Two requests bring the same new regex at once. How many times is it compiled?

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
# ## The idea in twenty lines
#
# An automaton over characters, written by hand for `a(b|cd)*`, and a vocabulary of seven tokens. For every state we walk
# every token, and note where it ends, if it comes through in full.

# %%
from jumpforward.notebook import Table

automaton = {0: {"a": 1}, 1: {"b": 1, "c": 2}, 2: {"d": 1}}
accepting = {1}
toy_tokens = ["a", "b", "c", "d", "ab", "cd", "bb"]


def end_of(state, text):
    """The state behind `text`, None where there is no way."""
    for char in text:
        state = automaton.get(state, {}).get(char)
        if state is None:
            return None
    return state


index = {state: {token: end_of(state, token) for token in toy_tokens if end_of(state, token) is not None}
         for state in automaton}
Table(["state", "token -> next state", "stop token"],
      [(state, str(ways), "allowed" if state in accepting else "") for state, ways in index.items()])

# %% [markdown]
# **Predict.** Which tokens will state 1 allow if the vocabulary also has `bcd` and `bc`?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Both. `bcd` ends in state 1 and `bc` in state 2: a token may end in the middle of what the pattern calls `cd`, as long
# as a way on is left.
# </details>

# %%
Table(["token", "state behind it"], [(token, end_of(1, token)) for token in [*toy_tokens, "bcd", "bc"]])

# %% [markdown]
# ## The same with a real vocabulary
#
# Stage 1's own code, step by step: go on with the arrow keys or the buttons, and before each step say how large it will
# come out. Type a regex of your own into the field. The picture is the automaton over characters, made minimal; the index
# has a row for every state that tokens can reach.

# %%
from jumpforward.stepper.widget import PipelineWidget, StepperWidget
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.sampling_params import SamplingParams

engine = Engine(EngineConfig(stage=1, trace=True))
vocabulary = engine.tokenizer.vocabulary
PipelineWidget("(Paris|Rome) is( the capital)?", vocabulary)

# %% [markdown]
# **Predict.** In the start state, how many tokens are allowed: `P` and `R`, or more? Which is the longest?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Every token that is the beginning of a text of the language: `P`, `Par`, `Paris`, and so on. The longest that the
# vocabulary happens to have ends the list. The mask lets the model choose any spelling, the usual one or not.
# </details>

# %%
from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.grammar_limits import GrammarLimits
from stages.stage1_copied_fsm.fsm import build_fsm
from stages.stage1_copied_fsm.regex import make_byte_automaton
from stages.stage1_copied_fsm.tokenizer import ReducedVocabulary

reduced = ReducedVocabulary(vocabulary)


def compiled(pattern):
    """The index of a pattern, as stage 1 builds it."""
    budget = Budget(GrammarLimits())
    return build_fsm(make_byte_automaton(pattern, budget), reduced, budget)


fsm = compiled("(Paris|Rome) is( the capital)?")


def spelled(state):
    """The texts of the tokens that a state allows, the stop token as <stop>."""
    return [vocabulary.token_bytes[one].decode() or "<stop>" for one in fsm.allowed(state).nonzero()[0].tolist()]


rows, state = [], 0
for text in ("", "Par", "is", " is", " the"):
    if text:
        state = fsm.next_state(state, engine.tokenizer.spell(text)[0])
    rows.append((repr(text), state, "yes" if fsm.accepts(state) else "", ", ".join(map(repr, spelled(state)))))
Table(["behind", "state", "accepts", "allowed"], rows)

# %% [markdown]
# Behind ` is` the text is complete, and it may also go on. There the stop token stands in the mask beside the others,
# and the model decides. This is the answer to question 2: stop is allowed exactly where the automaton accepts.
#
# ## The stepper, on a live decoder
#
# The answer is held to one of two sentences.
#
# **Predict.** After `The` only one text is possible. How many passes through the model does stage 1 spend on it?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# One a token, as for any other text, and one more in which the mask leaves only the stop token. Stage 2 exists because
# of these passes.
# </details>

# %%
from jumpforward.stepper.recording import record

question = [{"role": "user", "content": "What is the capital of France?"}]
recording = record(EngineConfig(stage=1), None, messages=question, sampling=SamplingParams(max_new_tokens=12),
                   constraint=Constraint.regex(r"(The capital of France is Paris|I do not know)\."))
StepperWidget(recording)

# %%
kept = [frame.mask.allowed for frame in recording.frames if frame.mask]
print(f"{recording.counts['forward_passes']} passes for {recording.answer!r}; tokens that the masks left: {kept}")
assert recording.counts["forward_passes"] == len(kept)

# %% [markdown]
# ## What compiling costs the others
#
# A request is being answered. Behind its third token another one arrives, with a new regex. Nothing compiles in the
# background in stage 1: upstream had a thread for it, but its only caller waited for the thread at once.
#
# **Predict.** What will the first request feel?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# One turn that takes as long as the compile: it gets no token meanwhile, although it has nothing to do with that regex.
# </details>

# %%
import time

import matplotlib.pyplot as plt

engine.generate_one("Hello", sampling=SamplingParams(max_new_tokens=2))  # the first pass of a process is slower
engine.add_request("Count: one, two,", sampling=SamplingParams(max_new_tokens=8), rid="first")
turns = []
while engine.has_work:
    if len(turns) == 3:
        engine.add_request("Say something.", constraint=Constraint.regex(r"[A-Z].{0,40}\."), rid="second",
                           sampling=SamplingParams(max_new_tokens=4))
    started = time.perf_counter()
    turn = engine.step()
    turns.append((1e3 * (time.perf_counter() - started), turn.ms["intake"]))
engine.take_events()
figure, axes = plt.subplots(figsize=(7, 2.5))
axes.bar(range(len(turns)), [whole for whole, _ in turns], label="the rest of the turn")
axes.bar(range(len(turns)), [intake for _, intake in turns], label="intake: waiting for the compile")
axes.set_xlabel("turn of the loop")
axes.set_ylabel("ms")
axes.legend()
plt.show()

# %% [markdown]
# ## One compile per regex
#
# Eight threads ask for the same new regex at once.

# %%
import threading

from stages.stage1_copied_fsm.fsm_cache import FSMCache

cache = FSMCache(compiled, timeout=30.0)
threads = [threading.Thread(target=cache.get, args=("[a-f]{1,8}",)) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"{len(threads)} threads asked, {cache.builds} build")
assert cache.builds == 1

# %% [markdown]
# ## Break it
#
# Upstream's index read a state without outgoing tokens as "only stop may come". Museum row 2: take `ax|b` and a
# vocabulary without a token for `x`. After `a` nothing can follow, so the answer stops at `a`, which does not match.
# Row 3: each regex reads the whole vocabulary again.

# %%
from tests.museum.__main__ import main as museum

assert museum(["2", "3"]) == 0

# %% [markdown]
# The real parts go further than "stop iff the state accepts": they also forbid `a` itself, since no way of *tokens*
# leads from there to a match. A mask that only looks at the automaton would walk into the dead end.
#
# ## Measure it
#
# What the index costs, against the length of a wildcard. Change the patterns: what about `[0-9]{0,100}`, where few
# tokens fit? What about `(a|b)*a(a|b){8}`?

# %%
rows = []
for length in (10, 20, 40):
    started = time.perf_counter()
    made = compiled(f".{{0,{length}}}")
    rows.append((f".{{0,{length}}}", len(made.rows), len(made.masks), made.nbytes / 1e6,
                 1e3 * (time.perf_counter() - started)))
Table(["pattern", "states", "different masks", "MB", "ms"], rows)

# %%
(_, states_a, _, _, _), (_, states_b, _, _, _) = rows[0], rows[-1]
assert states_b > 3 * states_a
print(f"{states_b / states_a:.1f} times the states; time grows with them, as every state walks the whole vocabulary")

# %% [markdown]
# ## Test yourself
#
# <details><summary>1. Why an index, and not the regex itself in each step?</summary>
#
# A step would have to try some 50,000 tokens against the pattern. The automaton has few states, every request with this
# regex shares them, and what a state allows never changes: compute it once, look it up for ever.
# </details>
#
# <details><summary>2. When may the stop token come?</summary>
#
# Exactly in accepting states. "When no other token may" is wrong twice: it stops where nothing has matched, and it does
# not stop where the text is complete and could go on.
# </details>
#
# <details><summary>3. What does the index cost?</summary>
#
# In time about states times tokens (a trie over the vocabulary shares the common beginnings), in memory one row of bits
# per different mask. And in stage 1 it costs every other request the wait.
# </details>
#
# <details><summary>4. Two requests, the same new regex?</summary>
#
# One compile: the cache keeps an entry from the first call on, and the second waits for it. That holds for one process;
# upstream's tensor-parallel ranks compiled each for itself.
# </details>
#
# ## How to say it in an interview
#
# > "Outlines' observation was that a regex is a finite automaton, so which tokens are legal depends on the state alone.
# > You walk every token through from every reachable state once, and get a map from state to mask. Decoding is then a
# > look-up and a state transition. The price is in the compile: states times vocabulary, on the scheduler's thread in
# > SGLang's first release, so a new regex stalled everybody. Stop belongs to accepting states, and a token should be
# > allowed only if a match stays reachable by tokens."
#
# ## The commits
#
# - [`22085081bb`](https://github.com/sgl-project/sglang/commit/22085081bb247cc57fe971c3d72eb66f053d77b6) (2024-01-08): the first release: four files after Outlines, and a cache with a thread that nobody let run.
# - [`40ab1f0129`](https://github.com/sgl-project/sglang/commit/40ab1f01294f1c6cebcc0ed8597b76db039028bb) (2024-01-20, #36): retraction; the state is reset when a request is read again.
# - [`ca13f3b8c5`](https://github.com/sgl-project/sglang/commit/ca13f3b8c58e419c04e706bb5a6711073f466aa0) (2024-01-21, #63): an index on disk; the thread goes, compiling is synchronous; the vocabulary is read once.
# - [`840c5dbcb3`](https://github.com/sgl-project/sglang/commit/840c5dbcb303d55f982cc386b539a892b5c4ba2e) (2024-09-29, #1521): much later, an error in a regex no longer ends the server.
