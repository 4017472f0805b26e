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
# # 08 Reading the real history
#
# The stages of this repository are dated commits of SGLang. This notebook reads them: first as data, which needs
# nothing, then, if you have a clone of SGLang, from the commits themselves. The aim is not the dates. It is to learn to
# check a story against a repository.
#
# **Can you answer these? Then skip to 09.**
#
# 1. For how long did stages 2 and 3 overlap? Which of them got more repairs?
# 2. "The feature moved into the libraries." How would you check such a sentence with git alone?
# 3. Most repairs of a feature are in folders that are not its own. What does that say about its future?
# 4. Which bugs of this history were never mended, and why may that be all right?

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
# ## A hundred commits in one table
#
# Every row of the timeline was checked against a full clone. A *stage* is the mechanism a commit belongs to, not the
# calendar: a repair of jumping made in the Outlines months belongs to stage 2.
#
# **Predict.** Which of the five mechanisms has most commits, and which of them has most fixes for each feature?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# Stage 5 has most by far: it is what runs today, for more than a year. The last column answers the second question.
# </details>

# %%
from collections import Counter

from history.timeline import select, timeline
from jumpforward.notebook import Table

rows = []
for stage in range(1, 6):
    own = select(timeline(), stages=[stage])
    kinds = Counter(row.kind for row in own)
    rows.append((stage, own[0].date, own[-1].date, len(own), kinds["feature"], kinds["fix"], kinds["dep"],
                 kinds["removal"], kinds["fix"] / max(1, kinds["feature"])))
Table(["stage", "first", "last", "commits", "features", "fixes", "dependencies", "removals", "fixes a feature"], rows)

# %%
assert max(rows, key=lambda row: row[3])[0] == 5
assert sum(row[3] for row in rows) == len(timeline())

# %%
import matplotlib.pyplot as plt

from history.figures import churn, commits_by_month

found = commits_by_month(timeline())
year, month = map(int, found[0].month.split("-"))
months = [found[0].month]
while months[-1] < found[-1].month:  # those without a commit, too
    year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    months.append(f"{year}-{month:02}")
figure, axes = plt.subplots(figsize=(9, 3))
base = dict.fromkeys(months, 0)
for stage in range(1, 6):
    heights = {one.month: one.commits for one in found if one.stage == stage}
    axes.bar(months, [heights.get(month, 0) for month in months], bottom=[base[month] for month in months],
             label=f"stage {stage}", hatch="/\\|-+"[stage - 1], edgecolor="white")
    base = {month: base[month] + heights.get(month, 0) for month in months}
axes.set_xticks(months[::3], months[::3], rotation=45, ha="right")
axes.set_ylabel("commits")
axes.legend(ncols=5, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1))
plt.show()

# %% [markdown]
# **Predict.** Which one commit of the timeline removed the most lines *net*, and what was it about?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# The import of Outlines (03): a copy of a library went. The famous removal of jump-forward is far down the list; it was a
# part of a clean-up that also added lines.
# </details>

# %%
net = sorted(timeline(), key=lambda row: row.insertions - row.deletions)[:5]
Table(["date", "commit", "net lines", "title"],
      [(row.date, row.short, row.insertions - row.deletions, row.title) for row in net])

# %%
assert net[0].hash.startswith("37b42297f8")
sums = [(one.stage, one.kind, one.insertions, one.deletions) for one in churn(timeline())]
Table(["stage", "kind", "insertions", "deletions"], sums)

# %% [markdown]
# ## With a clone
#
# `git clone https://github.com/sgl-project/sglang` (or a bare one), then put its folder here or into `SGLANG_REPO`.
# Without one the next cells say so and go on.

# %%
from pathlib import Path

from history.clone import open_clone
from shared_runtime.errors import JumpforwardError

CLONE = ""  # the folder of your clone; "" takes SGLANG_REPO
try:
    clone = open_clone(Path(CLONE) if CLONE else None)
except JumpforwardError as error:
    clone = None
    print(error)

# %% [markdown]
# **Predict.** How often does `jump_forward` stand in the scheduler's folder before the removal, how often after it, and
# in the folder of the grammar backends?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# In `managers/` it goes to zero; in `constrained/` it hardly changes. So the word survives where nobody calls it. The next
# step of the check is to look for callers of each name that is left: there are none.
# </details>

# %%
folders = ["python/sglang/srt/managers", "python/sglang/srt/constrained"]
if clone is not None:
    counted = [(ref, folder.rsplit("/", 1)[1], sum(clone.count("jump_forward", ref, [folder]).values()))
               for ref in ("935cda944b^", "935cda944b") for folder in folders]
    counts = Table(["at", "folder", "lines with jump_forward"], counted)
    callers = sum(clone.count(".try_jump_forward(", "935cda944b", ["python/sglang/srt/managers"]).values())
    print("callers of try_jump_forward in the scheduler's folder afterwards:", callers)
else:
    counts = "no clone: jumpforward history count jump_forward --at 935cda944b^ --at 935cda944b --repo FOLDER"
counts

# %% [markdown]
# **Predict.** Does a repair of jump-forward stay inside `constrained/`?
#
# <details><summary>Our answer, for after the next cell</summary>
#
# More than half of these do not touch it at all: what broke was usage, streaming, retraction and the batch. The mechanism
# was in `constrained/`, its consequences in the scheduler. Such a feature is paid for in other people's files; when the
# overlapped loop came, it was this price against that gain.
# </details>

# %%
if clone is not None:
    from history.layers import touched

    shown = Table(["date", "commit", "title", "files by layer"],
                  [(one.row.date, one.row.short, one.row.title[:50],
                    ", ".join(f"{layer} {count}" for layer, count in one.layers.items()))
                   for one in touched(clone, select(timeline(), stages=[2], kinds=["fix"]))])
    away = [row for row in shown.rows if "constrained" not in row[3]]
    print(f"{len(away)} of {len(shown.rows)} do not touch constrained/")
    assert len(away) > len(shown.rows) / 2
    clone.close()
else:
    shown = "no clone: jumpforward history touched --stage 2 --kind fix --repo FOLDER"
shown

# %% [markdown]
# ## The stepper: three dates, one request
#
# The same request on the decoders of February 2024, March 2025 and July 2026. The line with a bar at its side, under "What
# happened", says what a stage does otherwise than the others there.

# %%
from jumpforward.stepper.recording import record
from jumpforward.stepper.widget import StepperWidget
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.sampling_params import SamplingParams

sentence = Constraint.regex(r"(The capital of France is Paris|I do not know)\.")
recordings = [record(EngineConfig(stage=stage, limits=GrammarLimits(compile_timeout=120.0)), None, constraint=sentence,
                     messages=[{"role": "user", "content": "What is the capital of France?"}],
                     sampling=SamplingParams(max_new_tokens=16)) for stage in (2, 4, 5)]
print([one.counts["forward_passes"] for one in recordings], "passes")
StepperWidget(recordings)

# %% [markdown]
# ## Break it
#
# Each bug of the museum names the commit that mended it. Some were never mended while their code lived. Run one that was
# mended twice (31), and one that never was (68):

# %%
from jumpforward.museum import all_rows
from tests.museum.__main__ import main as museum

never = [row for row in all_rows() if not row.found]
print("never mended:", ", ".join(f"{row.number} ({row.title})" for row in never))
assert museum(["31", "68"]) == 0

# %% [markdown]
# ## Measure it
#
# How long does a bug live? For the rows whose cause is known: from the commit that brought it to the (last) one that
# mended it. Then ask of each: who could have noticed earlier, and by which test?

# %%
import datetime

lives = []
for row in all_rows():
    if row.found and row.caused_by:
        born, dead = row.caused_by[0], row.found[-1]
        days = (datetime.date.fromisoformat(dead.date) - datetime.date.fromisoformat(born.date)).days
        lives.append((days, row.number, row.title, born.commit, dead.commit))
lives.sort(reverse=True)
print(f"{len(lives)} bugs; median life {sorted(life[0] for life in lives)[len(lives) // 2]} days")
Table(["days", "row", "bug", "brought by", "mended by"], lives[:10])

# %% [markdown]
# ## Test yourself
#
# <details><summary>1. For how long did stages 2 and 3 overlap, and which got more repairs?</summary>
#
# From February to October 2024, eight months: jumping was repaired while the library it stood on was changed. By the first
# table stage 3 got more fixes and more changes for the library's sake.
# </details>
#
# <details><summary>2. Repairs of a feature lie in other folders. What does it say about its future?</summary>
#
# That others pay for it. It stays as long as its gain is worth their work, and goes when something that helps everybody
# (here the overlapped loop) cannot live with it.
# </details>
#
# <details><summary>3. Which bugs were never mended, and why may that be all right?</summary>
#
# Rows 2, 18 and 20 went with the code they lived in: nobody has to mend what is deleted. Rows 67 to 69 are in code that
# still runs: each needs a rare setting, or costs time and not truth. That is a judgement, and a reason to know them.
# </details>
#
# <details><summary>4. How do you find the commit of a version without tags?</summary>
#
# By the commit that changed the version number: `git log -G'^version = ' -- python/pyproject.toml`.
# </details>
#
# <details><summary>5. How do you check "the feature moved"?</summary>
#
# Count the word before and after, per folder (`git grep -c WORD REV -- FOLDER`), then look for *callers* of each name that
# stayed. A definition without a caller is no feature.
# </details>
#
# <details><summary>6. Which changes belong to one story?</summary>
#
# Follow the file through renames (`git log --follow`), the word through the history (`git log -S WORD`), and the number of
# the pull request in later messages. The message seldom gives the reason; say so instead of inventing one.
# </details>
#
# ## How to say it in an interview
#
# > "I checked the story against the repository. Jump-forward was forced off by the overlapped loop in November 2024 and
# > deleted in March 2025; the claim that it moved into the libraries fails a grep for callers. The multi-byte redesign is
# > #517, not #551, which is a five-line follow-up. Where a message gives no motive I say what the code shows and stop."
#
# ## The commits
#
# - [`22085081bb`](https://github.com/sgl-project/sglang/commit/22085081bb247cc57fe971c3d72eb66f053d77b6) (2024-01-08): the first. [`37b42297f8`](https://github.com/sgl-project/sglang/commit/37b42297f87645e6ed0517281beb0e5301a63d8e) (2024-02-09, #168): the import. [`54479d6f30`](https://github.com/sgl-project/sglang/commit/54479d6f301c0178be1c43209d1adc1684542520) (2024-11-13, #2020): the interface.
# - [`ffd20fcd03`](https://github.com/sgl-project/sglang/commit/ffd20fcd037fa2815c6a5dd8fa165200f7649d0d) (2024-11-19, #2095): jumping is forced off. [`935cda944b`](https://github.com/sgl-project/sglang/commit/935cda944b82d4828e9efb6606cd449afa4cd71c) (2025-03-03, #4032): and deleted.
# - [`9c902b1954`](https://github.com/sgl-project/sglang/commit/9c902b1954c55ec152a5ea91ed47e8cb696f7e46) (2024-06-12, #517) and [`ad5f04d6ce`](https://github.com/sgl-project/sglang/commit/ad5f04d6ce2198db81bcc8b173cceb1d3989d7eb) (2024-06-16, #551): the redesign over bytes, and its follow-up.
