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
# # 03 Outlines as a dependency
#
# On 9 February 2024, a month after the first release, SGLang deleted its copy of Outlines' code and imported the
# library. JSON schemas came with it, in August. This notebook looks at both sides: what a library gives, and what it
# keeps costing, with calls to the real library of today.
#
# **Can you answer these? Then skip to 04.**
#
# 1. How does a JSON schema become a mask, if all you have is an index for regexes?
# 2. Which schemas can that way not hold, whatever the library?
# 3. A library drops a keyword that it does not know. Who notices, and when?
# 4. Why does jump-forward need a second automaton here?

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

from history.timeline import timeline
from jumpforward.notebook import Table, Tokens
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.sampling_params import SamplingParams

the_import = next(row for row in timeline() if row.hash.startswith("37b42297f8"))
print(f"{the_import.date} {the_import.title}: {the_import.files_changed} files, "
      f"+{the_import.insertions} -{the_import.deletions}")

# %% [markdown]
# ## From a schema to a regex to an index
#
# The library's own function, on one property at a time:

# %%
import json

from outlines_core.json_schema import build_regex_from_schema

ship = {"type": "object", "properties": {"ship": {"type": "string", "maxLength": 12},
                                         "built": {"type": "integer", "minimum": 1700, "maximum": 1899}},
        "required": ["ship", "built"], "additionalProperties": False}
for schema in ({"type": "boolean"}, {"type": "string", "maxLength": 12}, {"enum": ["Paris", "Rome"]}, ship):
    print(json.dumps(schema)[:70], "\n    ", build_regex_from_schema(json.dumps(schema)))

# %% [markdown]
# **Predict.** Look at the last regex. Which years may this ship be built in?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Any: `minimum` and `maximum` are not in the regex. The library does not know them and says nothing.
# </details>

# %%
import re

library_says = build_regex_from_schema(json.dumps(ship))
for text in ('{"ship": "Ada", "built": 1820}', '{"ship": "Ada", "built": -7}'):
    print(text, "matches" if re.fullmatch(library_says, text) else "does not match")
assert re.fullmatch(library_says, '{"ship": "Ada", "built": -7}'), "the library has learned bounds: tell the truth above"

# %% [markdown]
# Stage 3 takes the frames of objects, arrays and choices from the library, one level at a time, and writes the rest
# itself, bounds of integers included. What neither can hold is refused by name. Nothing is dropped.

# %%
from stages.stage3_outlines.compat import schema_regex

ours = schema_regex(json.dumps(ship), "compact")
print(ours)
assert re.fullmatch(ours, '{"ship": "Ada", "built": 1820}')
assert not re.fullmatch(ours, '{"ship": "Ada", "built": -7}')

# %% [markdown]
# ## What the library's index gets wrong
#
# A vocabulary of seven tokens, so that every step can be seen. We walk a text, and ask at each token what is allowed.
#
# **Predict.** `[0-9]+(\.[0-9]+)?` on `1.5`, `abc|abcd` on `abcd`, `a(b|c)*` on `abcb`: which of the three goes through?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Only the last one. Where the text is complete and the way on leads through a state that is not, the library loses that
# way. So a number never gets its decimals, and an alternative is cut off at the first one that matches.
# </details>

# %%
from outlines_core import Guide, Index, Vocabulary

toy = ["1", ".", "5", "a", "b", "c", "d"]
toy_vocabulary = Vocabulary(99, {text: [place] for place, text in enumerate(toy)})


def walk(pattern, text):
    """What the library says to each token of a text."""
    guide = Guide(Index(pattern, toy_vocabulary))
    for char in text:
        if toy.index(char) not in guide.get_tokens():
            may = [toy[one] if one < 99 else "stop" for one in guide.get_tokens()]
            return f"{char!r} is refused; allowed are {may}"
        guide.advance(toy.index(char))
    return "taken"


cases = [(r"[0-9]+(\.[0-9]+)?", "1.5"), ("abc|abcd", "abcd"), ("a(b|c)*", "abcb")]
Table(["pattern", "text", "Python's re", "the library"],
      [(pattern, text, "matches" if re.fullmatch(pattern, text) else "", walk(pattern, text))
       for pattern, text in cases])

# %% [markdown]
# Stage 3 mends that from outside: it puts one extra character behind every pattern, a *terminator* that no answer can
# contain. Then no text is complete before its very end, so the library has no way to lose. In the mask, the terminator
# stands for the stop token. Here is the trick on the library itself, with `d` as the terminator:

# %%
assert walk(r"[0-9]+(\.[0-9]+)?", "1.5") != "taken", "the library has been mended: stage 3 could drop the trick"
print("with a terminator:", walk(r"([0-9]+(\.[0-9]+)?)d", "1.5d"))

# %% [markdown]
# ## The decoder
#
# The first schema imports `outlines`, which takes a while; the index is built in a process of its own, so that it can be
# stopped. The time limit is generous here, for busy machines.

# %%
engine = Engine(EngineConfig(stage=3, limits=GrammarLimits(compile_timeout=120.0)))
question = [{"role": "user", "content": "Invent a sailing ship."}]
sampling = SamplingParams(max_new_tokens=40)
result = engine.generate_one(messages=question, constraint=Constraint.json_schema(ship), sampling=sampling)
display(Tokens.of(engine.tokenizer.vocabulary, result.token_ids, result.origins))
print({name: round(ms, 1) for name, ms in result.ms.items()}, result.counts["forward_passes"], "passes")
built = json.loads(result.text)["built"]
assert 1700 <= built <= 1899

# %% [markdown]
# Jump-forward still works (yellow). The library's index does not say what text is forced, only which tokens are
# allowed; so the jump map comes from a second automaton, of the same regex, made by another library. The two number
# their states differently. After a jump, the new ids walk the index from its start.
#
# **Predict.** What does stage 3 say to these? A list whose items must differ; an object that contains itself; an object
# with a property that is required and not described.
#
# <details><summary>Our answer, for after the next cell</summary>
#
# All are refused, each with what and where. The library would drop the first keyword, cut the recursion off after a few
# levels, and forget the required name. A regex has no memory: the first two cannot be regular at all.
# </details>

# %%
impossible = [{"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
              {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
              {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a", "b"],
               "additionalProperties": False}]
answers = [engine.generate(messages=[question], constraint=Constraint.json_schema(one), sampling=sampling)[0]
           for one in impossible]
Table(["schema", "ends with", "why"], [(json.dumps(schema)[:60], one.finish_reason, str(one.error)[:160])
                                       for schema, one in zip(impossible, answers, strict=True)])

# %%
assert [one.finish_reason for one in answers] == ["error"] * 3

# %% [markdown]
# ## The stepper

# %%
from jumpforward.stepper.recording import record
from jumpforward.stepper.widget import StepperWidget

StepperWidget(record(EngineConfig(stage=3, limits=GrammarLimits(compile_timeout=120.0)), None, messages=question,
                     constraint=Constraint.regex(r'\{"ship": "[A-Z][a-z]{2,8}", "rig": "(sloop|schooner)"\}'),
                     sampling=sampling))

# %% [markdown]
# ## The living price
#
# Within a week of the import, a release of the library broke it. What followed:

# %%
from stages.stage3_outlines.compat import REPAIRS, parse_version

Table(["release", "commit", "what broke", "the answer"], REPAIRS)

# %% [markdown]
# ## Break it
#
# The answer to 0.0.35 compared versions as texts. Which is newer, 0.0.100 or 0.0.35? Museum row 23 shows it. Row 32 is a
# whitespace pattern without a bound: blank lines up to the limit.

# %%
print('as texts, "0.0.100" >= "0.0.35" is', "0.0.100" >= "0.0.35", "- as numbers:",
      parse_version("0.0.100") >= parse_version("0.0.35"))
from tests.museum.__main__ import main as museum

assert museum(["23", "32"]) == 0

# %% [markdown]
# ## Measure it
#
# Stage 1's index is built by NumPy, the library's in Rust. The same patterns, each new to its engine (stage 3's figure
# also has the way to its child process and the jump map):

# %%
old = Engine(EngineConfig(stage=1, limits=GrammarLimits(compile_timeout=120.0)), loaded=engine.parts.loaded)
rows = []
for pattern in ("(yes|no)", "[a-z]{1,20}", r'"[^"]{0,30}"'):
    times = [one.generate_one("Hm.", constraint=Constraint.regex(pattern), sampling=SamplingParams(max_new_tokens=1))
             .ms["compile"] for one in (old, engine)]
    rows.append((pattern, *times))
Table(["pattern", "stage 1, ms", "stage 3, ms"], rows)

# %% [markdown]
# ## Test yourself
#
# <details><summary>1. How does a schema become a mask?</summary>
#
# Schema to regex, regex to index, index to mask. The regex writes the properties in their order, with one spelling of
# whitespace.
# </details>
#
# <details><summary>2. What can that way not hold?</summary>
#
# Anything of unbounded depth (recursive schemas, any JSON object), anything that compares parts (`uniqueItems`), and in
# practice what makes the regex too long: a regex has no stack, and its automaton multiplies what it must remember.
# </details>
#
# <details><summary>3. Who notices a dropped keyword?</summary>
#
# Nobody at admission. The answer is valid for a weaker schema; it fails in whoever trusted the schema. So check what a
# library is known to drop before you hand a schema over, and refuse or warn.
# </details>
#
# <details><summary>4. Why a second automaton for the jump?</summary>
#
# The library's index maps states to tokens and hides characters. What is forced is a matter of characters, so the jump
# map needs an automaton of its own, and a way to get back into the index: by the new ids.
# </details>
#
# ## How to say it in an interview
#
# > "SGLang took out 1,464 lines, nearly all of them copies, put in 27 that import Outlines, and got JSON schemas by
# > turning them into regexes. That bought features and moved the risk: releases broke imports and constructors, the schema translation dropped
# > keywords silently, and a regex cannot hold recursion. The lesson I take is to keep a test per known deviation that
# > fails when the library mends it, to refuse at admission rather than to weaken a schema, and to run a build that cannot
# > be interrupted in a process that can be killed."
#
# ## The commits
#
# - [`37b42297f8`](https://github.com/sgl-project/sglang/commit/37b42297f87645e6ed0517281beb0e5301a63d8e) (2024-02-09, #168): the copied files go, Outlines is imported.
# - [`2a74748b2f`](https://github.com/sgl-project/sglang/commit/2a74748b2fb0f061934e056a90db5edfbf2a7dee) (2024-02-16, #196): a week later, the first pin.
# - [`3c2c5869ad`](https://github.com/sgl-project/sglang/commit/3c2c5869ad719d41d87f6aca8a71e683ebcadc76) (2024-02-23, #219) and [`77835756a7`](https://github.com/sgl-project/sglang/commit/77835756a7e9511bb63ac74a5b5c11543f69344c) (2024-03-23, #291): renamed builder, changed constructor.
# - [`9935f97b3e`](https://github.com/sgl-project/sglang/commit/9935f97b3e594e246776466d04134decff1b59ae) (2024-08-26, #1125): `json_schema` as a parameter of a request.
# - [`93dffd699b`](https://github.com/sgl-project/sglang/commit/93dffd699bd653fb1dfef44f30eb3d7ec40d6a4d) (2024-09-16, #1438): whitespace gets a bound.
# - [`840c5dbcb3`](https://github.com/sgl-project/sglang/commit/840c5dbcb303d55f982cc386b539a892b5c4ba2e) (2024-09-29, #1521): a bad regex no longer ends the server; its request runs free, which is another bug.
