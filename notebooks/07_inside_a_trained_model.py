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
# # Inside a trained model
#
# At the end you will be able to
#
# - watch induction heads appear: a bump in the loss, and a score that says which heads they are,
# - switch a head off and say with an interval what it was for,
# - read the stream of a model as logits, and take a logit apart into what each head adds,
# - and find by patching where in a model a piece of information is.
#
# Every activation of a model has a name. `T.run_with_cache` reads activations, `T.intervene` changes them, and a
# model that nobody watches is the same compiled program as one without names.

# %%
# In a hosted notebook, first: %pip install git+ADDRESS_OF_THIS_REPOSITORY
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import transformer as T
from transformer.core import runtime
from transformer.objectives.objective import cross_entropy
from transformer.study.statistics import mean_interval
from transformer.training.program import make_program

runtime.start()  # before the first array: each core becomes a device
V, L, R = 24, 32, 6  # tokens, length, replicas

# %% [markdown]
# ## What there is to learn
#
# Half of the sequences are *repeats*: random tokens, the same again after 6 to 14 of them. Nothing predicts the
# first part; the second can be copied, and only by looking back at what followed the same token before. That is
# what an induction head does (Olsson et al. 2022). The other half is *text* of a Markov chain, in which the token
# before is all that matters.


# %%
def repeats(rng, count, low=6, high=14):
    period = rng.integers(low, high + 1, (count, 1))
    return np.take_along_axis(rng.integers(V, size=(count, L + 1)), np.arange(L + 1) % period, 1).astype(np.int32)


chances = np.random.default_rng(0).dirichlet(np.full(V, 0.1), size=V).cumsum(1)


def text(rng, count):
    tokens = [rng.integers(V, size=count)]
    for _ in range(L):
        tokens.append((rng.random(count)[:, None] > chances[tokens[-1], :-1]).sum(1))
    return np.stack(tokens, 1).astype(np.int32)


def batches(replica, start, steps, batch_size=32):
    rng = np.random.default_rng((replica, start))
    both = np.concatenate([make(rng, steps * batch_size // 2) for make in (repeats, text)])
    return rng.permutation(both).reshape(steps, batch_size, L + 1)


# %% [markdown]
# ## Six models in one program
#
# Two layers of attention and nothing else, and a relative position: as small as a model with induction heads can
# be. Six replicas, which differ in the seed, train as one compiled program.

# %%
model = T.ModelConfig(
    vocab_size=V,
    max_length=L,
    num_layers=2,
    d_model=32,
    feed_forward=None,
    position=T.T5Bias(),
)
config = T.preset("tiny").replace(
    {"model": model, "optimizer.learning_rate": 2e-2, "steps": 1000, "batch_size": 32, "evaluate_every": 1000}
)
program = make_program(config, T.grid(range(R)))
params, apply = T.split(T.LanguageModel(model, key=jax.random.key(0)))
print(f"{T.parameter_count(model):,} parameters each")

# %% [markdown]
# ## What to watch
#
# On sequences that repeat after 12 tokens the *induction score* of a head is its mean weight on the token after
# the last one alike. `T.run_with_cache` is a pure function, so that it goes under `jax.jit` and over the replicas
# like any other.

# %%
PERIOD = 12
repeated = jnp.asarray(repeats(np.random.default_rng(1), 64, PERIOD, PERIOD))
fresh = jnp.asarray(text(np.random.default_rng(2), 64))


def mean_loss(apply, params, tokens, first):
    """Nats per token, of the tokens from `first` on."""
    losses = cross_entropy(apply(params, tokens[:, :-1]), tokens[:, 1:])
    return losses[:, first:].mean()


@jax.jit
@partial(jax.vmap, in_axes=(0,))
def watch(params):
    _, found = T.run_with_cache(apply, params, repeated[:, :-1], names="blocks.*.attention.pattern")
    scores_NH = T.induction_scores(T.stacked(found, "blocks.*.attention.pattern"), PERIOD)
    return scores_NH, mean_loss(apply, params, repeated, PERIOD), mean_loss(apply, params, fresh, 0)


# %%
state, history = program.init(), []
for start in range(0, config.steps, 50):
    history.append((start, *map(np.asarray, watch(state.params))))
    tokens = np.stack([batches(replica, start, 50) for replica in range(R)])
    state, _ = program.train(state, program.put({"tokens": tokens}))
history.append((config.steps, *map(np.asarray, watch(state.params))))

# %%
steps, scores, repeat_losses, text_losses = (np.array(column) for column in zip(*history, strict=True))
T.loss_curves({"repeats, second part": (steps, repeat_losses.T), "text": (steps, text_losses.T)})

# %% [markdown]
# The text is learned first. For some hundred steps the repeats cost as much as a guess, ln 24 = 3.18 nats, and
# more; then their loss falls within a few hundred steps, at another time in every replica: the band is wide there.

# %%
rise = T.loss_curves({"best head of block 1": (steps, scores[:, :, 1].max(-1).T)}, ylabel="induction score")
rise

# %% [markdown]
# The score of the best head rises at the same steps. That is a coincidence in time, and not yet a cause.
#
# ## Which heads

# %%
scores_RNH = scores[-1]
heads = [f"block {layer}, head {head}" for layer in range(2) for head in range(4)]
T.heat_map(scores_RNH.reshape(R, -1), rows=range(R), columns=heads, label="induction score", ylabel="replica")

# %%
induction_RH = scores_RNH[:, 1] > 0.25
print("induction heads in block 1, by replica:", induction_RH.sum(1))
assert induction_RH.any(1).all()
assert scores_RNH[:, 0].max() < 0.25  # none in block 0: a head needs what one before it wrote

# %% [markdown]
# Here is a replica at work on one sequence: rows are queries, columns keys. An induction head is the line
# 11 tokens below the diagonal, which begins where the repetition begins.

# %%
one = jax.tree.map(lambda leaf: leaf[0], state.params)
_, found = T.run_with_cache(apply, one, repeated[:1, :-1])
maps = T.attention_maps(T.stacked(found, "blocks.*.attention.pattern")[:, 0])
maps

# %% [markdown]
# ## Switching heads off
#
# A cause is shown by an intervention. In every replica its induction heads answer their mean over the batch in
# place of their own answer; then, as a control, all other heads of block 1 do.


# %%
@jax.jit
@jax.vmap
def losses_without(params, off_H):
    def silence(z_BLHK):
        return jnp.where(off_H[:, None], z_BLHK.mean((0, 1)), z_BLHK)

    changed = T.intervene(apply, {"blocks.1.attention.z": silence})
    return mean_loss(changed, params, repeated, PERIOD), mean_loss(changed, params, fresh, 0)


def losses(off_RH):
    return np.array(losses_without(state.params, jnp.asarray(off_RH)))


before, intervals = losses(np.zeros((R, 4), bool)), {}
for which, off_RH in {"induction heads": induction_RH, "other heads": ~induction_RH}.items():
    for name, rises in zip(("repeats", "text"), losses(off_RH) - before, strict=True):
        low, high = mean_interval(rises)
        intervals[f"{name} without {which}"] = (rises.mean(), low, high)
        print(f"{name} without the {which}: {rises.mean():+.2f} nats [{low:+.2f}, {high:+.2f}], 95 % over {R} replicas")

# %%
T.forest(intervals, xlabel="rise of the loss, nats")

# %%
assert intervals["repeats without induction heads"][1] > 1  # the lower end
assert max(map(abs, intervals["text without induction heads"])) < 0.3

# %% [markdown]
# Without the heads that the score found, what can be copied costs as much as a guess and more; the loss of the
# text hardly changes (it falls a little: where nothing repeats, these heads only disturb). The intervals are over
# replicas: six models that were trained, not six batches of one.
#
# ## The stream as logits
#
# The *logit lens* reads the stream at every place as if the model ended there.

# %%
target_BL = repeated[:, 1:]
lens = T.logit_lens(apply, one, repeated[:, :-1])
for name, logits_BLV in lens.items():
    chance_BL = jnp.take_along_axis(jax.nn.softmax(logits_BLV), target_BL[..., None], -1)[..., 0]
    print(f"{name:24} chance of the right token {chance_BL[:, PERIOD:].mean():.2f}")

# %% [markdown]
# What to write is not known after block 0, and known after block 1. *Attribution* says which head writes it:
# logits are a sum of what all parts add to the stream, once the last norm divides by what it divides by.

# %%
parts = T.logit_attribution(apply, one, repeated[:, :-1], target_BL=target_BL)
added = {name: float(part[:, PERIOD:].mean()) for name, part in parts.items()}
for name, logit in added.items():
    print(f"{name:24} {logit:+.2f}")
logits_BLV = lens["blocks.1.resid_post"]
total = float(jnp.take_along_axis(logits_BLV, target_BL[..., None], -1)[:, PERIOD:].mean())
print(f"sum {sum(added.values()):.3f}, logit {total:.3f}")
assert abs(sum(added.values()) - total) < 1e-3

# %%
best = max((name for name in added if "head" in name), key=lambda name: added[name])
print(f"most comes from {best}")
assert best.startswith("blocks.1")
assert induction_RH[0, int(best[-1])]

# %% [markdown]
# ## Patching: where is it
#
# Two sequences that differ in one token: … A B … A, and … A C … A. After the clean one B follows, after the
# corrupted one C. One activation of the clean run, at one position, is put into the corrupted run: where that
# brings B back, there is the information.

# %%
clean = repeated[:, : PERIOD + 6]  # the last token has been at position 5; position 6 is what followed it
corrupted = clean.at[:, 6].set((clean[:, 6] + 1) % V)
right, wrong = clean[:, 6], corrupted[:, 6]


def preference(logits_BLV):
    """How far the last token prefers B to C, in logits."""
    last_BV, row = logits_BLV[:, -1], jnp.arange(len(right))
    return (last_BV[row, right] - last_BV[row, wrong]).mean()


names = [f"blocks.{layer}.{place}" for layer in range(2) for place in ("resid_pre", "attention.z", "resid_post")]
low, high = (float(preference(apply(one, tokens))) for tokens in (corrupted, clean))
effects = T.patching_effects(apply, one, (clean,), (corrupted,), names, preference)
recovered = (np.stack(list(effects.values())) - low) / (high - low)
patching = T.heat_map(recovered, rows=names, columns=range(clean.shape[1]), label="recovered", xlabel="position")
patching

# %% [markdown]
# Before block 1 the information is at position 6 alone, where B stands: in block 1 the last token fetches it,
# and from then on it is at the last position. Patching the induction heads alone, there alone, recovers most of
# it, in every replica:


# %%
@jax.jit
@jax.vmap
def recovery(params, induction_H):
    z = "blocks.1.attention.z"
    _, found = T.run_with_cache(apply, params, clean, names=z)
    kept_H1 = induction_H[:, None]
    patched = T.intervene(apply, {z: lambda z_BLHK: jnp.where(kept_H1, found[z], z_BLHK)})
    low, high, now = (
        preference(run(params, t)) for run, t in ((apply, corrupted), (apply, clean), (patched, corrupted))
    )
    return (now - low) / (high - low)


shares = np.array(recovery(state.params, jnp.asarray(induction_RH)))
low_end, high_end = mean_interval(shares)
print(f"recovered by the induction heads: {shares.mean():.0%} [{low_end:.0%}, {high_end:.0%}] over {R} replicas")
assert low_end > 0.5
