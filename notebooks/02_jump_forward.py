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
# # 02 Jump-forward
#
# A format leaves little to choose. After `{` this notebook's answer can only go on with `"city": "`, and stage 1 spends
# a pass through the model on each token of it. Stage 2 (25 January 2024) writes such text without the model. That is
# one idea, and a dozen ways to get it wrong.
#
# **Can you answer these? Then skip to 03.**
#
# 1. When is text forced? What is forced behind `ab` in `ab(cde)?`, and behind the quote in `"[^"]*"`?
# 2. Forced text is known. Why is it not simply appended as tokens?
# 3. What happens to the keys and values of a request that jumps? How many passes does a jump cost?
# 4. What becomes of `max_new_tokens`, of stop strings, of usage, of a stream, when tokens appear that nobody sampled?

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
from shared_runtime.policy import StageOptions
from shared_runtime.sampling_params import SamplingParams

first_stage = Engine(EngineConfig(stage=1))
engine = Engine(EngineConfig(stage=2, trace=True), loaded=first_stage.parts.loaded)
vocabulary = engine.tokenizer.vocabulary
question = [{"role": "user", "content": "Tell me about the capital of France, as JSON."}]
card = Constraint.regex(r'\{"city": "[A-Za-z ]{1,12}", "country": "(France|Spain|Italy)", '
                        r'"population in millions": [0-9]{1,2}\}')
sampling = SamplingParams(max_new_tokens=40)

# %% [markdown]
# ## What is forced
#
# From a state with exactly one way on, the next byte is certain. Follow such states and you have the forced text. The
# map is over bytes, and it needs no vocabulary.

# %%
from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.grammar_limits import GrammarLimits
from stages.stage1_copied_fsm.regex import make_byte_automaton
from stages.stage2_jump_forward.jump_forward import JumpForwardMap


def forced(pattern, behind):
    """The text that `pattern` forces behind a text."""
    automaton = make_byte_automaton(pattern, Budget(GrammarLimits()))
    return JumpForwardMap.of(automaton).forced(automaton.walk(0, behind.encode())).decode("utf-8", "replace")


print(repr(forced(card.source, "{")))

# %% [markdown]
# **Predict.** What is forced in each of these? `ab(cde)?` behind `ab`; `"[^"]*"` behind `"`; `(France|Francium)`
# behind `F`; `x{3,5}` behind `x` and behind `xxx`; `naïve|naïf` behind `na`.
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Behind `ab` nothing: the text may stop, and stopping is a way on. Behind the quote nothing. `ranc` is common to both
# words. Behind one `x` two more are certain, behind three nothing is. `ï` is two bytes, both certain.
# </details>

# %%
cases = [("ab(cde)?", "ab"), ('"[^"]*"', '"'), ("(France|Francium)", "F"), ("x{3,5}", "x"), ("x{3,5}", "xxx"),
         ("naïve|naïf", "na")]
Table(["pattern", "behind", "forced"], [(pattern, behind, repr(forced(pattern, behind))) for pattern, behind in cases])

# %%
assert [forced(*case) for case in cases] == ["", "", "ranc", "xx", "", "ï"]

# %% [markdown]
# ## How many passes
#
# **Predict.** Stage 1 needs a pass for each token. How many does stage 2 need for the same answer?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# One for each token that was sampled. A jump costs none of its own: the pass that reads the forced tokens also gives
# the next sampled one. (The picture shows one sampled token fewer than there were passes: it was replaced, see below.)
# </details>

# %%
slow = first_stage.generate_one(messages=question, constraint=card, sampling=sampling)
engine.add_request(messages=question, constraint=card, sampling=sampling)
rewrites, fast = [], None
while fast is None:
    turn = engine.step()
    rewrites += [(turn.step, one) for one in turn.requests if one.jump is not None]
    fast = next((event.result for event in engine.take_events() if event.result), None)
assert fast.text == slow.text
display(Tokens.of(vocabulary, slow.token_ids, slow.origins, f"stage 1: {slow.counts['forward_passes']} passes"),
        Tokens.of(vocabulary, fast.token_ids, fast.origins, f"stage 2: {fast.counts['forward_passes']} passes "
                  "(yellow, double border: written by a jump)"))

# %% [markdown]
# Look at `millions`. Stage 1 has it in pieces, stage 2 in one token. A mask allows every spelling of a forced text, and
# the model is pushed into whichever fragment is most probable *in that step*; a jump encodes the text as the model met
# it in training. So jumping changes more than speed.
#
# ## Retokenization, token by token
#
# The forced text cannot be appended as tokens of its own: the last sampled token and the beginning of the forced text
# may be one token to the tokenizer. So the whole answer is encoded anew, and what is different is replaced.

# %%
for step, one in rewrites:
    jump = one.jump
    display(Tokens.of(vocabulary, jump.old_ids, title=f"turn {step}: {jump.text!r} is forced. Before:"),
            Tokens.of(vocabulary, jump.new_ids, ["sampled"] * jump.common_prefix
                      + ["jumped"] * (len(jump.new_ids) - jump.common_prefix),
                      f"After; the first {jump.common_prefix} ids stayed:"))

# %% [markdown]
# **Predict.** In which of these jumps did an id that was already sampled change?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Where fewer ids stayed than there were before. The `{` that was sampled first is one token with the quote behind it.
# </details>

# %%
changed = [(step, Tokens.of(vocabulary, one.jump.old_ids[one.jump.common_prefix:])) for step, one in rewrites
           if one.jump.common_prefix < len(one.jump.old_ids)]
print(changed)
assert len(changed) >= 1
assert sum(len(one.jump.old_ids) - one.jump.common_prefix for _, one in rewrites) == fast.counts["reencoded"]

# %% [markdown]
# ## What happens to the memory
#
# Keys and values belong to the ids they were computed from. A request that jumps gives all it has to the prefix cache,
# under the *old* ids, and comes back through the queue like a new one. It finds the part that stayed the same.

# %%
Table(["turn", "ids that stayed, with the prompt", "found in the cache", "read by the pass"],
      [(step, len(fast.prompt_ids) + one.jump.common_prefix, one.prefix_hit, len(one.fed)) for step, one in rewrites])

# %%
for _, one in rewrites:
    assert one.prefix_hit + len(one.fed) == len(fast.prompt_ids) + len(one.jump.new_ids)

# %% [markdown]
# (One id fewer is found than stayed where the newest one stayed, too: its keys and values were not computed yet.)
# The pass reads the new ids, and no more than those: the surgery looks brutal and costs little, *because* there is a
# radix cache.
#
# ## The stepper
#
# Press `j` for the next jump. The automaton shows chains of forced text as one edge; the radix tree grows a branch
# where ids changed. The second button is stage 1 on the same request.

# %%
from jumpforward.stepper.recording import record
from jumpforward.stepper.widget import StepperWidget

StepperWidget([record(EngineConfig(stage=stage), None, messages=question, constraint=card, sampling=sampling)
               for stage in (2, 1)])

# %% [markdown]
# ## Every bug of it
#
# Text that nobody sampled meets everything that counted tokens. These are the bugs that history knows of, with what a
# user saw:

# %%
from jumpforward.museum import all_rows

bugs = [row for row in all_rows() if 2 in row.stages]
Table(["row", "bug", "what a user saw", "mended by"],
      [(row.number, row.title, row.symptom, ", ".join(one.commit for one in row.found) or "never") for row in bugs])

# %% [markdown]
# ## Break it
#
# Each row has a *specimen*: the smallest faithful wrong variant of a real part. Here all of them break, each by its own
# rule, while every real part holds. For one row in full, run `museum(["13"])`.

# %%
import io
from contextlib import redirect_stdout

from tests.museum.__main__ import main as museum

said = io.StringIO()
with redirect_stdout(said):
    all_as_they_should = museum([str(row.number) for row in bugs]) == 0
for line in said.getvalue().splitlines():
    if not line.startswith("  ") or line.startswith("  specimen"):
        print(line)
assert all_as_they_should

# %% [markdown]
# **Predict.** The map of row 13 in a whole stage, on `(Yes|No)( sir)?`. The model would stop behind `No`. What comes out?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# The optional tail, always: the map takes the one way on and does not see that stopping is another. Nobody sampled it, so
# no probability could have kept it away.
# </details>

# %%
from tests.museum.exhibits import specimen

whale = {"messages": [{"role": "user", "content": "Is a whale a fish? Answer yes or no."}],
         "constraint": Constraint.regex("(Yes|No)( sir)?"), "sampling": sampling}
right = record(EngineConfig(stage=2), None, **whale)
with specimen(13):
    wrong = record(EngineConfig(stage=2), None, **whale)
print(f"the stage: {right.answer!r}, with the specimen in it: {wrong.answer!r}")
assert wrong.answer == right.answer + " sir"
StepperWidget([wrong, right], labels=["with the specimen", "as it is"])

# %% [markdown]
# ## Measure it
#
# A jump pays when the forced text is long. `min_jump_bytes` says from how many bytes on it is worth a re-admission
# (upstream: more than one). Where does it pay on your machine, and where does it not?

# %%
patterns = {"card": card, "pairs": Constraint.regex(r"([a-z]: [0-9], ){4}")}
rows = []
for options in (StageOptions(jump_forward=False), StageOptions(min_jump_bytes=1), StageOptions(min_jump_bytes=2),
                StageOptions(min_jump_bytes=8)):
    tried = Engine(EngineConfig(stage=2, options=options), loaded=first_stage.parts.loaded)
    for name, constraint in patterns.items():
        one = tried.generate_one(messages=question, constraint=constraint, sampling=sampling)
        rows.append((name, f"from {options.min_jump_bytes} bytes" if options.jump_forward else "off",
                     one.counts["forward_passes"], one.counts["jumped"], one.counts["reencoded"],
                     one.ms["total"] - one.ms["compile"]))
Table(["pattern", "jumps", "passes", "jumped", "reencoded", "ms"], sorted(rows))

# %% [markdown]
# ## Test yourself
#
# <details><summary>1. When is text forced?</summary>
#
# As long as the state does not accept and has one way on. An accepting state forces nothing: `ab(cde)?` behind `ab`
# may stop. Upstream's first map missed that (rows 12 and 13) until August 2024.
# </details>
#
# <details><summary>2. Why is forced text not simply appended as tokens?</summary>
#
# The border between the sampled text and the forced text is no token border in the text the model was trained on. The
# answer is encoded anew as a whole; ids in front of the border may change.
# </details>
#
# <details><summary>3. What does a jump cost?</summary>
#
# No pass of its own. It costs the tokenizing on the scheduler's thread, a way through the queue, and the slots of the
# ids that were replaced, until they are evicted. "4 %" in the blog post of 2024-02-05 is the cost of retokenizing, not
# a share of token borders.
# </details>
#
# <details><summary>4. What about limits, stops, usage and streams?</summary>
#
# One output list counts for all: a limit cuts jumped tokens too, stop strings are searched in the whole text, the
# prompt's length is kept as it came, and a stream is told of text, since ids behind the border may still change.
# Rows 7, 8, 9 and 21 are what happens otherwise.
# </details>
#
# ## How to say it in an interview
#
# > "Jump-forward compresses chains of the automaton with a single way on. When a request is about to decode and its
# > state forces text, the scheduler writes that text, encodes the answer anew so that the ids are the tokenizer's own,
# > frees the request and admits it again as an extend; the radix cache gives back the common prefix. It saves a pass
# > per forced token and restores the usual spelling. The price is that the scheduler rewrites a request between two
# > steps, and everything that counted tokens had to learn of it. That is also why it later died: an overlapped loop
# > has the next step running already."
#
# ## The commits
#
# - [`01ee0fbc05`](https://github.com/sgl-project/sglang/commit/01ee0fbc051f4e177ad917ef90ab26904c7d6cab) (2024-01-25): the idea, under the name fast-forward, over characters.
# - [`26f0bedc8f`](https://github.com/sgl-project/sglang/commit/26f0bedc8f351ed9b67d9b85ee30aa0c5f2aef45) (2024-02-05, #144): renamed to jump-forward.
# - [`f06e90c2cf`](https://github.com/sgl-project/sglang/commit/f06e90c2cfb41f283a22ee705ca20d2f451aab6e) (2024-05-26, #440): retraction keeps output and state; the limit counts all of the output.
# - [`9c902b1954`](https://github.com/sgl-project/sglang/commit/9c902b1954c55ec152a5ea91ed47e8cb696f7e46) (2024-06-12, #517): the redesign: a map over bytes, all or nothing.
# - [`ad5f04d6ce`](https://github.com/sgl-project/sglang/commit/ad5f04d6ce2198db81bcc8b173cceb1d3989d7eb) (2024-06-16, #551): a follow-up in two files, for a library that spelled byte symbols in a new way.
# - [`7620cd37dd`](https://github.com/sgl-project/sglang/commit/7620cd37dd3935eb23963c33b6c7f0444b8fd909) (2024-07-19, #665): streams survive a jump.
# - [`e205527cb1`](https://github.com/sgl-project/sglang/commit/e205527cb11148b19ba4061d8503e7866c3f25dd) (2024-08-13, #1084): accepting states do not jump.
# - [`9610fcd469`](https://github.com/sgl-project/sglang/commit/9610fcd46964507a7c5418ea35e94935c7881815) (2024-10-12, #1654): the batch is no longer taken for full after a jump.
