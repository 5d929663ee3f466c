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
# # Your own ablation in ten minutes
#
# At the end you will be able to
#
# - turn a question about a model into a study of two arms,
# - read its report: the difference, its interval, the verdict, and what was too small to be seen,
# - and change one line to ask a question of your own.

# %%
# In a hosted notebook, first: %pip install git+ADDRESS_OF_THIS_REPOSITORY
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import transformer as T
from transformer.core import runtime
from transformer.study.statistics import mean_interval

folder = Path(tempfile.mkdtemp())
runtime.start()  # before the first array: each core becomes a device

# %% [markdown]
# ## A question
#
# Dropout switches random features off during training, so that a model cannot learn its texts by heart. Our
# model reads each text hardly once: there is nothing to learn by heart. What does dropout cost it then?
#
# Write down what you expect *before* you look. We expect that dropout is worse.
#
# ## The study
#
# A study needs a config, the changes that make its arms, and how often everything is repeated. The first arm is the
# baseline. Each arm runs with six seeds at three learning rates, because an arm that is tuned less is no fair
# opponent: 36 runs, and the baseline once more under six other seeds.

# %%
base = T.preset("tiny").replace(
    {"model.d_model": 32, "model.mixer.num_heads": 2, "optimizer.rule": T.Muon(), "optimizer.warmup_steps": 20},
    steps=100,
    steps_per_dispatch=25,
)
study = T.Study(
    "dropout",
    base,
    {"plain": {}, "dropout": {"model.dropout": 0.2}},
    seeds=6,
    learning_rates=(1e-2, 3e-2, 1e-1),
    question="What does dropout cost a model that reads each text hardly once?",
)

# %% [markdown]
# Six is the least that is worth it: of six pairs whose signs are all the same, chance makes 1 in 32, and of five 1
# in 16, which no honest test calls significant. How large a difference could such a study show, before we run it?

# %%
print(f"{study.planned_effect():.1f} standard deviations over seeds, if pairs were worth nothing")

# %% [markdown]
# All runs of an arm are one compiled program, in which seeds and learning rates are an axis of the arrays. What is
# finished is kept in the folder: run the cell again, and nothing is computed.

# %%
report = study.run(folder, say=lambda line: None)
report.show()

# %% [markdown]
# ## Reading it
#
# The first table has the answer. *loss* is that of texts that no run has seen, in nats per character, at the
# learning rate that the arm's own runs chose. *difference* is dropout minus plain, with the interval that holds it
# with 95 %. The verdict is what the interval says:
#
# | the interval | verdict |
# |---|---|
# | is below zero | better |
# | is above zero | worse |
# | lies within the margin, here ±0.01 nats | equivalent |
# | does none of these | unresolved: *not* the same as equal |

# %%
found = report.contrasts["dropout"]
low, high = found.interval
print(f"{found.difference:+.3f} nats, between {low:+.3f} and {high:+.3f}: {found.verdict}")
T.forest(
    {"dropout": (found.difference, low, high)},
    xlabel="validation loss minus that of the plain model, nats per character",
    margin=report.record.margin,
    verdicts={"dropout": found.verdict},
)

# %% [markdown]
# ## Every pair
#
# Both arms saw the same seeds: the same initial values and the same batches in the same order. So seed 0 of one arm is
# compared with seed 0 of the other. Each line is such a pair. What counts is that the lines agree, however far apart
# they start.

# %%
plain, dropped = (np.array(arm.estimates) for arm in report.arms)
figure, axes = plt.subplots(figsize=(4, 3.2), layout="constrained")
axes.plot([0, 1], [plain, dropped], "o-", color="C0", alpha=0.6)
axes.set_xticks([0, 1], ["plain", "dropout"])
axes.set(ylabel="validation loss, nats per character", xlim=(-0.3, 1.3))
plt.show()

# %% [markdown]
# The interval by hand is Student's, of the six differences. That of the report is no narrower: it also pays for the
# choice of the learning rates, which were chosen by the same runs that are judged.

# %%
pairs = dropped - plain
by_hand = mean_interval(pairs)
print("differences:", " ".join(f"{pair:+.3f}" for pair in pairs))
print(f"by hand {pairs.mean():+.3f}, between {by_hand.low:+.3f} and {by_hand.high:+.3f}")
print(f"pairs are worth: correlation over seeds {report.correlation:+.2f}")

# %% [markdown]
# ## Before you believe it
#
# - Was the learning rate tuned? A best rate at the edge of the three says that a better one may lie outside.
# - Is the *noise floor* empty? It is the baseline against itself under other seeds: what no difference looks like.
# - Was the study able to see what matters? *detectable* is the difference that it finds four times in five.
# - It is about 100 steps of a small model on one text. Seeds vary nothing else.

# %%
T.learning_rate_curves({arm.name: dict(zip(study.learning_rates, arm.values, strict=True)) for arm in report.arms})

# %%
print(*(report.warnings() or ["nothing to warn of"]), sep="\n")

# %% [markdown]
# ## Your turn
#
# Change the second arm and run the notebook again. Each of these is one line:
#
# | the question | the arm |
# |---|---|
# | Do gates help? | `{"model.feed_forward.activation": T.GLU(T.SiLU())}` |
# | Do rotary positions? | `{"model.position": T.RoPE()}` |
# | Another norm? | `{"model.norm": T.RMSNorm()}` |
# | Norms after the sublayers? | `{"model.residual": T.PostNorm()}` |
# | One head of keys and values for both? | `{"model.mixer.num_kv_heads": 1}` |
#
# If an arm has other sizes, `match="parameters"` makes them equal. If the verdict is *unresolved*, `max_seeds=24` adds
# seeds, up to 24, while it is, with the error held; it may stay so. `study.run("results/mine")` keeps the folder; in
# it `report.html` is the page to send to others, and `plan.json` says what you asked before you looked (to prove it to
# others, publish its hash first). Your own text is `T.load_data(T.TextConfig(path="input.txt"))`, given to `study.run`
# as `data`.
