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
# # Reading an ablation
#
# At the end you will be able to
#
# - run a study and read its intervals, its verdicts and its learning-rate curves,
# - say what pairing the seeds is worth, and when it is worth nothing,
# - and list what a table of losses does *not* show, with the numbers from your own runs.

# %%
# In a hosted notebook, first: %pip install git+ADDRESS_OF_THIS_REPOSITORY
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np

import transformer as T
from transformer.core import runtime
from transformer.study.comparison import Scores, compare
from transformer.study.statistics import mean_interval
from transformer.study.tuning import Tuning

folder = Path(tempfile.mkdtemp())
runtime.start()  # before the first array: each core becomes a device

# %% [markdown]
# ## A small study
#
# Four arms, each with eight seeds at three learning rates: 96 runs in four compiled programs, and the baseline once
# more under eight other seeds: that row shows what no difference looks like.
#
# One arm is there to check the check. A bias on the *keys* adds the same number to all scores of a query, and
# softmax does not see it: this arm is the baseline with idle parameters. We know the truth about it.

# %%
base = T.preset("tiny").replace(
    {"model.d_model": 32, "model.mixer.num_heads": 2, "optimizer.rule": T.Muon(), "optimizer.warmup_steps": 20},
    steps=130,
    steps_per_dispatch=26,
)
RATES = (5e-3, 2e-2, 8e-2)
study = T.Study(
    "reading",
    base,
    {
        "baseline": {},
        "key bias": {"model.mixer.bias": ("key",)},
        "RMSNorm": {"model.norm": T.RMSNorm()},
        "RoPE": {"model.position": T.RoPE()},
    },
    seeds=8,
    learning_rates=RATES,
)
report = study.run(folder, say=lambda line: None)
report.show()

# %% [markdown]
# ## First the learning rates
#
# A study that gives all arms one learning rate compares learning rates. Each dot is the mean of eight runs, the
# bar goes from the lowest to the highest of them.

# %%
losses = {arm.name: np.array(arm.values) for arm in report.arms}  # rates × seeds
T.learning_rate_curves({name: dict(zip(RATES, by_rate, strict=True)) for name, by_rate in losses.items()})

# %%
for arm in report.arms:
    print(f"{arm.name:10} chosen {arm.learning_rate:g}, sensitivity {arm.metrics['sensitivity'].value:.3f} nats")
    for doubt in arm.doubts:
        print(f"           {doubt}")

# %% [markdown]
# *Sensitivity* is how much worse an arm is on average over the rates than at its best one: what it costs not to
# tune. A choice can be worth having because it makes tuning unnecessary, without a better best loss.
#
# ## Differences, with their intervals
#
# The verdict of an arm is what the interval of its difference to the baseline says: *better* or *worse* if it leaves
# out zero; *equivalent* if all of it lies within the margin, here ±0.01 nats; *unresolved* if neither. Unresolved is
# not equal. The intervals are wide enough to hold all together with 95 %, so the more arms, the wider.

# %%
verdicts = {name: found.verdict for name, found in report.contrasts.items()}
T.forest(
    {name: (found.difference, *found.interval) for name, found in report.contrasts.items()},
    xlabel="validation loss minus that of the baseline, nats per character",
    margin=report.record.margin,
    verdicts=verdicts,
)

# %%
assert verdicts["key bias"] == "equivalent"
assert verdicts["RoPE"] == "better"

# %% [markdown]
# ## What pairing is worth
#
# All arms saw the same seeds: the same initial values where shapes agree, the same batches in the same
# order. A lucky order of the data is then lucky for both, and cancels in the difference. How much it cancels is
# the correlation ρ over seeds: the deviation of a paired difference is √(2(1 − ρ)) deviations of a run, of
# an unpaired one √2.

# %%
estimates = {arm.name: np.array(arm.estimates) for arm in report.arms}


def against(arm, baseline, comparisons=1):
    """The comparison of two arms at given rates, seed by seed."""
    return compare([(1, Scores(arm, arm)), (-1, Scores(baseline, baseline))], margin=0.01, comparisons=comparisons)


for name in list(estimates)[1:]:
    paired = against(estimates[name], estimates["baseline"])
    apart = np.sqrt(estimates[name].var(ddof=1) + estimates["baseline"].var(ddof=1))
    print(
        f"{name:10} ρ = {paired.correlation:+.2f}: differences of pairs vary by {paired.deviation:.4f}, "
        f"of strangers by {apart:.4f}"
    )

# %% [markdown]
# The arm whose truth we know has ρ = 1 wherever it has the baseline's learning rate: the runs are the same up to
# rounding. Pairing is worth that much where a change is small or idle, and nothing where it sends training
# another way. Without pairs, not even idle parameters could be shown to be idle within 0.01 nats.
#
# ## A verdict is about a procedure
#
# An arm is judged at the rate that its own runs chose. The choice itself is noisy where two rates are close, and an
# unlucky rate looks like a bad arm: the next section is about that. And how large a difference is depends on the
# rates: look at each arm at *every* rate, besides its verdict.

# %%
for name in ("RMSNorm", "RoPE"):
    print(f"{name}: {verdicts[name]}")
    for rate, own, plain in zip(RATES, losses[name], losses["baseline"], strict=True):
        paired = against(own, plain)
        print(
            f"   both at {rate:g}: {paired.difference:+.4f} ± {paired.interval.half:.4f}, ρ = {paired.correlation:+.2f}"
        )

# %% [markdown]
# In our run RoPE gains little more than half as much where both arms have the baseline's rate as where each has its
# own. A study at one rate would have found the sign and missed the size.
#
# ## One seed
#
# What would we have said with one run of each arm? We have eight of each at every rate, so we can count: at the
# middle rate, over all choices of a seed for each arm of a pair, how often is the order of the two runs not that
# of the means? (The idle arm has no order.)

# %%
runs = {name: losses[name][1] for name in ("baseline", "RMSNorm", "RoPE")}
wrong = {}
print("wrong order by one run each:    same seed   any two seeds")
for first, second in combinations(runs, 2):
    gaps = runs[first][:, None] - runs[second]
    differs = np.sign(gaps) != np.sign(gaps.mean())
    wrong[first, second] = differs.mean()
    print(f"{f'{first} and {second}':28} {np.diag(differs).mean():11.0%} {differs.mean():14.0%}")
assert max(wrong.values()) > 0.05

# %% [markdown]
# Where the difference is large against the spread, one seed would do; where it is small, one seed is nearly a
# coin. The trouble is that with one seed nobody knows which of the two it is. Giving both arms the *same* seed
# helps where ρ is high: that is pairing again. And with more seeds? We draw n of our eight, again and
# again, for the two arms that are close.

# %%
rng, counts = np.random.default_rng(0), np.arange(1, 33)
shares = {"other seeds for each arm": [], "the same seeds for both": []}
order = np.sign(runs["RMSNorm"].mean() - runs["baseline"].mean())
for count in counts:
    one, other = rng.integers(8, size=(2, 4000, count))
    for name, own in zip(shares, (other, one), strict=True):
        gap = runs["RMSNorm"][own].mean(1) - runs["baseline"][one].mean(1)
        shares[name].append((np.sign(gap) != order).mean())
assert shares["other seeds for each arm"][0] > shares["other seeds for each arm"][-1]
curves = {name: (counts, share) for name, share in shares.items()}
T.loss_curves(curves, xlabel="seeds", ylabel="share of wrong orders", reference=("a coin", 0.5))

# %% [markdown]
# With seeds of their own the arms need dozens of runs before their order is likely right. Pairs get there much
# sooner.
#
# ## Many arms
#
# Each test at 5 % is wrong once in twenty times. Try enough arms that are all the baseline, and one of them is
# "better". We simulate that with the spread of our own baseline: `arms` copies of it, six
# seeds each, and ask how often at least one is found, each as if it were alone and all together as a study does.

# %%
spread = estimates["baseline"].std(ddof=1)


def false_findings(arms, studies=400):
    """The shares of studies with a false finding: each arm as if alone, and all together."""
    found = np.zeros(2)
    for _ in range(studies):
        drawn = rng.normal(0, spread, (arms + 1, 6))
        for number, comparisons in enumerate((1, arms)):
            found[number] += min(against(arm, drawn[0], comparisons).p for arm in drawn[1:]) < 0.05
    return found / studies


chances = {arms: false_findings(arms) for arms in (1, 3, 10)}
for arms, (plain, corrected) in chances.items():
    print(f"{arms:2} arms like the baseline: {plain:.0%} of the studies find something, {corrected:.0%} corrected")
assert chances[10][0] > 2 * chances[10][1]

# %% [markdown]
# The same happens without any arms, to whoever tries variants until one works and reports the last. Count
# what you tried.
#
# ## Choosing and judging by the same runs
#
# The best of three rates looks better on the seeds that chose it than it is. So a study reads every arm twice: at the
# rate that all seeds choose, which is too kind, and for each half of the seeds at the rate that the other half
# chooses, which is unkind. Each end of an interval takes the reading that is against it. Where both readings are one,
# the choice was clear and costs nothing.

# %%
for name, by_rate in losses.items():
    best, held = Tuning(RATES, by_rate, by_rate).scores
    print(f"{name:10} at the rate of all seeds {best.mean():.4f}, at that of the others {held.mean():.4f}")

# %% [markdown]
# How much would it matter? We draw studies of an arm against itself, with the spread of our baseline and three rates
# that are nearly as good, and count how often the arm is better or worse than itself: judged at the rate that a third
# of the seeds chose, on the others, as is often done, and by both readings.

# %%
gaps = np.array([0.0, 0.7, 1.0])[:, None] * spread
wrong_by = {"a third chooses": 0, "both readings": 0}
for _ in range(400):
    one, other = (gaps + rng.normal(0, spread, (3, 9)) for _ in range(2))
    thirds = [runs[runs[:, :3].mean(1).argmin(), 3:] for runs in (one, other)]
    wrong_by["a third chooses"] += against(*thirds).p < 0.05
    pair = [(sign, Tuning(RATES, runs, runs).scores) for sign, runs in ((1, one), (-1, other))]
    wrong_by["both readings"] += compare(pair, margin=0.01).p < 0.05
print({name: f"{count / 400:.1%}" for name, count in wrong_by.items()})
assert wrong_by["a third chooses"] > wrong_by["both readings"]

# %% [markdown]
# ## What must not be concluded
#
# - *From one seed*: anything that the table above calls a coin.
# - *From "unresolved"*: that two arms are equal. That is "equivalent", and has to be shown within a margin.
#   What this study could have found, four times in five, is in the column *detectable* of the first table.
# - *From a best rate at the edge of the grid*: that the arm is tuned.
# - *From 130 steps*: where training ends. Such a study measures who starts faster.
# - *From intervals over seeds*: anything about another text, size or tokenizer. Seeds vary initial values and
#   the order of the data, and nothing else.
# - *From two intervals that overlap*: that there is no difference. The test is about the difference, and
#   with paired seeds its interval can be far narrower than either.

# %%
print(*report.summary(), *report.warnings(), sep="\n")
print(f"interval of the baseline's loss ±{mean_interval(estimates['baseline']).half:.4f}")
