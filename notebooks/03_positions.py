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
# # Positions compared
#
# At the end you will be able to
#
# - see what each positional scheme does to a score matrix,
# - tell absolute from relative schemes by moving a sequence,
# - and measure what happens on texts longer than those of the training.

# %%
# In a hosted notebook, first: %pip install git+ADDRESS_OF_THIS_REPOSITORY
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import transformer as T
from transformer.core import runtime
from transformer.training.program import make_program

folder = Path(tempfile.mkdtemp())
runtime.start()  # before the first array: each core becomes a device

# %% [markdown]
# ## The same token at every place
#
# Attention alone does not see order: permute the tokens and the outputs are permuted. So give an untrained
# model the *same* token at every place. Any difference between its scores then comes from the
# positional scheme alone.
#
# All schemes are values of one slot of the config.

# %%
SCHEMES = {
    "none": None,
    "learned": T.Learned(std=0.2),
    "sinusoidal": T.Sinusoidal(),
    "RoPE": T.RoPE(),
    "xPos": T.XPos(),
    "ALiBi": T.ALiBi(),
    "T5 bias": T.T5Bias(),
    "FIRE": T.FIRE(),
}
shape = T.ModelConfig(vocab_size=8, max_length=64, num_layers=1, d_model=32, initializer=T.Normal(0.3))


# %%
def reader(scheme, length=24):
    """From the first position to (length, length) scores of head 1, before the mask, of one token repeated."""
    params, apply = T.split(T.LanguageModel(shape.replace(position=scheme), key=jax.random.key(0)))
    name, tokens = "blocks.0.attention.scores", jnp.ones((1, length), jnp.int32)

    def score(first):
        positions = first + jnp.arange(length)[None]
        return T.run_with_cache(apply, params, tokens, positions_BL=positions, names=name)[1][name][0, 1]

    return jax.jit(score)


readers = {name: reader(scheme) for name, scheme in SCHEMES.items()}
scores = {name: np.asarray(read(0)) for name, read in readers.items()}

# %%
figure, axes = plt.subplots(2, 4, figsize=(11, 5.6), layout="constrained")
for own, (name, values) in zip(axes.flat, scores.items(), strict=True):
    centred = values - (values.min() + values.max()) / 2
    limit = max(centred.max(), 1e-3)
    own.imshow(centred, cmap="RdBu_r", vmin=-limit, vmax=limit)
    own.set_title(f"{name}: {values.min():.2f} to {values.max():.2f}", fontsize=9)
    own.set(xlabel="key", ylabel="query")
plt.show()

# %% [markdown]
# Queries down, keys across, colours from each matrix's own lowest score, blue, to its highest, red.
#
# - **none**: one number everywhere. (A causal mask still lets later layers count tokens.)
# - **learned** and **sinusoidal** are added to the embedding, and the projections mix them with all else: every
#   pair of places has a score of its own. Sinusoids are smooth: neighbours have similar scores.
# - **RoPE** turns queries and keys by their position, so that their product depends on the distance: stripes
#   along the diagonals. **xPos** is the same, times a factor that fades with distance.
# - **ALiBi** is no vector at all but a ramp that is taken off the scores.
# - **T5 bias** is a table of buckets of distances, random before training. All later keys, which the causal
#   mask will hide, share a bucket here.
# - **FIRE** is a small network of the distance divided by the position of the query.
#
# ## Moving a sequence
#
# A scheme is *relative* if only distances count: the same tokens at positions 30, 31, … give the scores they
# gave at 0, 1, … A config says of itself whether its scheme is. Is it true?

# %%
print("                 moved by 30   says it is relative")
for name, scheme in SCHEMES.items():
    change = float(np.abs(np.asarray(readers[name](30)) - scores[name]).max())
    relative = shape.replace(position=scheme).relative
    print(f"{name:14} {change:12.6f}   {relative}")
    assert (change < 1e-3) == relative

# %% [markdown]
# Sinusoids are often said to be relative, and there is something to it: the product of two of the *added
# vectors* depends on their distance alone, for $\sin a \sin b + \cos a \cos b = \cos(a - b)$. But the
# model compares projections of sums, not the vectors.

# %%
sinusoids = T.Sinusoidal().to_embedding(jnp.arange(64)[None], 64, {})[0]
products = sinusoids @ sinusoids.T
assert max(float(np.ptp(np.diagonal(products, k))) for k in range(64)) < 1e-4
T.position_similarity(sinusoids[:20])

# %% [markdown]
# ## Longer texts than those of the training
#
# A table of learned positions has an end, and past it there is nothing to look up. The library refuses
# before anything is compiled:

# %%
model = T.LanguageModel(shape, key=jax.random.key(0))
try:
    model(jnp.ones((1, 65), jnp.int32))
except T.ConfigError as error:
    print(error)

# %% [markdown]
# The others answer, but do they answer well? We train small models on blocks of 32 characters, four seeds of
# each scheme in one compiled program, and then let the same parameters read blocks of 128. Sinusoids have
# values up to 1 and fresh embeddings have a deviation of 0.02, so that arm multiplies its embeddings by √d, as
# Vaswani et al. 2017 do.

# %%
corpus = T.load_data(T.TextConfig())
base = T.preset("tiny").replace(
    {"optimizer.rule": T.Muon(), "optimizer.learning_rate": 2e-2, "optimizer.warmup_steps": 30}, steps=120
)
LENGTH, LONGER = base.model.max_length, 128
ARMS = {
    "none": {"model.position": None},
    "sinusoidal": {"model.position": T.Sinusoidal(), "model.embedding.scaled": True},
    "RoPE": {"model.position": T.RoPE()},
    "ALiBi": {"model.position": T.ALiBi()},
    "T5 bias": {"model.position": T.T5Bias()},
}
SEEDS = T.grid(seeds=range(4))


def loss_by_position(config, params):
    """(seeds, LONGER) nats per character on the held-out text, cut into blocks of LONGER."""
    longer = corpus.complete(config.replace({"model.max_length": LONGER}))
    program = make_program(longer, SEEDS)
    sums, _ = program.evaluate(params, corpus.validation_batches(longer))
    return np.asarray(sums.loss / sums.weight)


# %%
trained, losses = {}, {}
for name, changes in ARMS.items():
    config = base.replace(changes)
    trained[name] = T.train(config, SEEDS, corpus, folder / name)
    losses[name] = loss_by_position(config, trained[name].all_params)

# %% [markdown]
# Loss by position is rough, because each position has other characters; but they are the same for all
# schemes. We average over 8 positions. The band goes from the lowest to the highest of the four seeds.

# %%
places = np.arange(4, LONGER, 8)
curves = {name: (places, values.reshape(4, -1, 8).mean(-1)) for name, values in losses.items()}
curves["length of training"] = ([LENGTH, LENGTH], [1.9, 2.5])
T.loss_curves(curves, xlabel="position", ylabel="validation loss, nats per character")

# %%
inside, past = ({n: v[:, part].mean(1) for n, v in losses.items()} for part in (slice(8, LENGTH), slice(96, None)))
print("               positions 9 to 32    97 to 128     difference")
for name in ARMS:
    gap = past[name] - inside[name]
    print(
        f"{name:14} {inside[name].mean():13.3f} {past[name].mean():16.3f} {gap.mean():+10.3f} ± {gap.std(ddof=1):.3f}"
    )
gaps = {name: past[name] - inside[name] for name in ARMS}
assert gaps["ALiBi"].max() < min(gaps["RoPE"].min(), gaps["T5 bias"].min())
assert max(inside["RoPE"].mean(), inside["ALiBi"].mean(), inside["T5 bias"].mean()) < inside["none"].mean()

# %% [markdown]
# At the length of training the three schemes of distances are ahead of sinusoids and of no positions at all. Past
# it, only ALiBi of the three loses nothing (± is the deviation over four seeds): distances that never occurred in
# training get a bias that continues the line, and tokens so far away have almost no weight. RoPE meets angles, and
# T5's bias buckets, that were never trained.
#
# What must not be concluded: that ALiBi *uses* the longer context. A flat curve says that the loss does not
# suffer from it; a model that ignores everything older than a few characters has a flat curve as well. And
# these are models of 32 characters, seconds old. The order inside and past the trained length agrees with the
# experiment `experiments/position.py` and with Press et al. 2021; its size may be another at another scale.
