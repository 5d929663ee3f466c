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
# # Masks, and what leaks without them
#
# At the end you will be able to
#
# - combine masks as values, `T.Causal() & T.Padding()`, and see which pairs of tokens they allow,
# - find a leak of the future in a gradient, and recognize one from a loss that is too good,
# - say why `<EMPTY>` tokens are not the same as scores of −∞,
# - and pack documents side by side so that each is read as if it were alone.

# %%
# In a hosted notebook, first: %pip install git+ADDRESS_OF_THIS_REPOSITORY
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

import transformer as T

LENGTH, WIDTH = 12, 32
config = T.ModelConfig(
    vocab_size=30,
    max_length=32,
    d_model=WIDTH,
    num_layers=2,
    mixer=T.Attention(num_heads=2),
    position=T.RoPE(),
    initializer=T.FanIn(),
)
params, apply = T.split(T.LanguageModel(config, key=jax.random.key(0)))
tokens = jax.random.randint(jax.random.key(1), (1, LENGTH), 0, 30)

# %% [markdown]
# ## A decoder must not see the next token
#
# A language model predicts token $i+1$ from the tokens up to $i$. In training all positions are predicted at once, so
# the later tokens are there to be seen. The scores of keys $j > i$ are set to $-\infty$ before the softmax:
#
# $$e_{ij} = q_i^\top k_j \;\text{ if } j \le i, \qquad e_{ij} = -\infty \;\text{ if } j > i .$$
#
# $\exp(-\infty) = 0$: the weights are zero, and the rest of the row still sums to one. With tokens in rows the allowed
# part is the lower triangle; in texts with tokens in columns it is the upper one.

# %%
places = T.Tokens.at(np.arange(6))
allowed = T.Causal()(places, places)[0, 0]
print(np.asarray(allowed).astype(int))
assert (allowed == np.tril(np.ones((6, 6), bool))).all()

# %% [markdown]
# With the mask, reading all at once is the same as reading one prefix after another, each on its own. That is why
# its predictions are honest.

# %%
q, k, v = jax.random.normal(jax.random.key(2), (3, 1, 6, 1, 4))
at_once = T.attention(q, k, v, queries=places, keys=places, mask=T.Causal()).out
for i in (0, 2, 5):
    alone = T.attention(
        q[:, i : i + 1], k[:, : i + 1], v[:, : i + 1], queries=places.block(i, 1), keys=places.block(0, i + 1)
    ).out
    assert np.allclose(alone, at_once[:, i : i + 1], atol=1e-6)

# %% [markdown]
# Does it matter whether the mask is added before or after the scores are divided by $\sqrt d$? Not with $-\infty$. It
# does with a finite number, as some programs use: divided by $\sqrt d$, −10 lets much more through.

# %%
scores = np.einsum("lk,sk->ls", q[0, :, 0], k[0, :, 0])
for penalty in (-np.inf, -10.0):
    mask = np.where(allowed, 0.0, penalty)
    after = np.asarray(jax.nn.softmax(scores / 2 + mask))
    before = np.asarray(jax.nn.softmax((scores + mask) / 2))
    print(f"{penalty}: weight on the future {after[~allowed].max():.4f} after, {before[~allowed].max():.4f} before")
    assert np.allclose(after, before) == (penalty == -np.inf)

# %% [markdown]
# ## Causality in a gradient
#
# Whether a whole model is causal can be seen without looking at its code. The gradient of the output at position $i$
# with respect to the input at position $j$ must be zero for $j > i$. We let a small vector be added to each embedding,
# and draw the size of the derivative for each pair of positions.


# %%
def influence(**how):
    """(L, L): how much each output moves with each input, the norm of a block of the Jacobian."""

    def logits(nudges):
        nudged = T.intervene(apply, {"blocks.0.resid_pre": lambda x: x + nudges})
        return nudged(params, tokens, **how)[0]

    jacobian = jax.jit(jax.jacrev(logits))(jnp.zeros((1, LENGTH, WIDTH)))  # (L, V, 1, L, D)
    return np.sqrt((np.asarray(jacobian) ** 2).sum((1, 2, 4)))


causal, full = influence(), influence(mask=T.Full())
assert (np.triu(causal, 1) == 0).all()
assert (np.triu(full, 1) > 0).any()
T.heat_map(causal, xlabel="input", ylabel="output", label="gradient")

# %% [markdown]
# Exactly zero above the diagonal, and not only small; on it and below it every output moves with every input. Now
# the mistake that everyone makes once: a triangle that ends one place too far to the right.

# %%
too_far = T.Arbitrary(jnp.tril(jnp.ones((32, 32), bool), 1))
leaky = influence(mask=too_far)
for ahead in (1, 2, 3):
    print(f"influence of the token {ahead} ahead, mean over positions: {np.diagonal(leaky, ahead).mean():.2f}")
assert (np.diagonal(leaky, 1) > 0).all()
assert (np.diagonal(leaky, 2) > 0).all()
assert (np.triu(leaky, 3) == 0).all()
T.heat_map(leaky, xlabel="input", ylabel="output", label="gradient")

# %% [markdown]
# One place too far in each of two layers: a little comes from two tokens ahead as well, since what token $i+1$ saw
# of token $i+2$ is passed on.
#
# ## A leak in a loss
#
# What does such a leak do to training? We train the model on the text that comes with Python, with the right mask and
# with the wrong one, three seeds of each.

# %%
corpus = T.load_corpus(T.TextConfig())
run = corpus.complete(T.RunConfig(model=config.replace(vocab_size=None, d_model=64), batch_size=8, steps=200))
_, apply_text = T.pure_model(run.model)
optimizer = optax.adam(3e-3)
batches = corpus.train_batches(run, seed=0)
stacked = {"tokens": jnp.stack([batches[i]["tokens"] for i in range(run.steps)])}


@jax.jit
def trained(allowed_LL, key):
    own = functools.partial(apply_text, mask=T.Arbitrary(allowed_LL))
    step = T.repeat(T.make_train_step(own, T.NextToken(), optimizer))
    start = T.initialize(lambda key: T.build(run.model, key=key), key)
    state = T.create_train_state(start, optimizer, T.Numbers(0.0, 0.0, 0.0), key)
    state, metrics = step(state, stacked)
    return state.params, metrics["loss"]


keys = jax.random.split(jax.random.key(3), 3)
triangles = {"causal": jnp.tril(jnp.ones((32, 32), bool)), "leaky": too_far.allowed}
runs = {
    name: jax.tree.map(lambda *a: jnp.stack(a), *[trained(triangle, key) for key in keys])
    for name, triangle in triangles.items()
}
T.loss_curves({name: (np.arange(run.steps), loss) for name, (_, loss) in runs.items()}, ylabel="training loss")

# %% [markdown]
# The leaky model's loss falls towards zero, far below what an honest model of this text could have: it copies the
# token that it is to predict. When it has to predict in earnest, under the causal mask, it is much worse than the
# model that never cheated. A training loss that is too good, and samples that are rubbish, are the sign of a leak.

# %%
held_out = {name: jnp.asarray(array[0]) for name, array in corpus.validation_batches(run).items()}


@jax.jit
@jax.vmap
def honest_loss(params):
    sums = T.NextToken()(apply_text, params, held_out, None)
    return sums.loss.sum() / sums.weight.sum()


in_training = {name: losses[:, -20:].mean() for name, (_, losses) in runs.items()}
in_earnest = {name: honest_loss(trained_params) for name, (trained_params, _) in runs.items()}
for name in runs:
    print(f"{name}: training loss {in_training[name]:.2f}, under the causal mask {in_earnest[name].mean():.2f}")
assert in_training["leaky"] < 0.7 < in_training["causal"]
assert (in_earnest["leaky"] > in_earnest["causal"] + 0.3).all()

# %% [markdown]
# ## Padding, and why `<EMPTY>` is not −∞
#
# Sentences of a batch have different lengths; shorter ones are filled up with a padding token. `valid_BL` says which
# tokens are real. The model then combines `T.Padding()` with its own mask, and what stands in the padding is without
# any influence. To see it we look backwards as well: without a direction, `mask=T.Full()`.

# %%
EMPTY = 0
short = jnp.array([[5, 9, 7, 3]])
padded = jnp.concatenate([short, jnp.full((1, 4), EMPTY)], axis=1)
valid = jnp.arange(8)[None] < 4
read = jax.jit(functools.partial(apply, params, mask=T.Full()))
alone = read(short)
masked = read(padded, valid_BL=valid)[:, :4]
assert np.allclose(masked, alone, atol=1e-5)
assert np.allclose(read(padded + 11 * ~valid, valid_BL=valid)[:, :4], alone, atol=1e-5)

# %% [markdown]
# Another proposal is to have no mask and let `<EMPTY>` tokens fill the blank. They are then tokens like any other:
# they have keys, so they get weight, and values, so they are mixed in. How much the outputs change depends on how many
# there are.

# %%
for count in (1, 4, 16):
    filled = jnp.concatenate([short, jnp.full((1, count), EMPTY)], axis=1)
    moved = float(jnp.abs(read(filled)[:, :4] - alone).max())
    print(f"{count:2d} <EMPTY> tokens: logits move by {moved:.3f}")
    assert moved > 0.05

# %% [markdown]
# Even an `<EMPTY>` token whose key and value are zero vectors is no mask. Its score is 0, and $\exp(0) = 1$, while a
# mask has $\exp(-\infty) = 0$: with $n$ of them the real tokens keep the share $Z / (Z + n)$ of the weight, with
# $Z = \sum_j \exp(e_{ij})$.

# %%
q, k, v = jax.random.normal(jax.random.key(4), (3, 1, 4, 1, 8))
zeros = jnp.zeros((1, 4, 1, 8))
four, eight = T.Tokens.at(np.arange(4)), T.Tokens.at(np.arange(8))
real = T.attention(q, k, v, queries=four, keys=four).out
longer_k, longer_v = (jnp.concatenate([z, zeros], 1) for z in (k, v))
diluted = T.attention(q, longer_k, longer_v, queries=four, keys=eight).out
total = np.exp(np.einsum("blhk,bshk->bls", q, k) / np.sqrt(8)).sum(-1)
print("share that is left to real tokens:", np.round(total / (total + 4), 2))
assert np.allclose(diluted[..., 0, :], (total / (total + 4))[..., None] * real[..., 0, :], atol=1e-5)

# %% [markdown]
# A model can learn to ignore `<EMPTY>` tokens, as it can learn anything; a mask need not be learned, and holds for any
# number of them. One case is left: a query that may attend to nothing. Softmax over only $-\infty$ is 0/0, and most
# programs answer with NaN or with the mean of everything that was forbidden. Here it is zeros, and gradients are
# finite.

# %%
nobody = T.Tokens.at(np.arange(4), valid=jnp.zeros((1, 4), bool))
mixed = functools.partial(T.attention, queries=nobody, keys=nobody, mask=T.Padding())
assert (mixed(q, k, v).out == 0).all()
assert all(np.isfinite(g).all() for g in jax.grad(lambda *qkv: mixed(*qkv).out.sum(), argnums=(0, 1, 2))(q, k, v))

# %% [markdown]
# ## Packing
#
# Padding wastes work. `T.pack` puts several documents into one row instead, and says of each token to which document
# (`segments`) and to which place in it (`positions`) it belongs.

# %%
documents = [np.arange(1, 1 + n) for n in (5, 4, 3, 6, 2)]
rows = T.pack(documents, length=12)
print(rows["tokens"], rows["segments"], rows["positions"], sep="\n\n")

# %% [markdown]
# Masks are values that combine with `&`, `|` and `~`. In a packed row a token may see tokens that are before it *and*
# in its own document *and* no padding.

# %%
side = T.Tokens.at(rows["positions"], rows["segments"], rows["valid"])
both = T.Causal() & T.Segment() & T.Padding()
T.heat_map(both(side, side)[0, 0].astype(int), xlabel="key", ylabel="query", label="allowed")

# %% [markdown]
# Each document is then read as if it were alone in the world, which we check token by token. Without segments it is
# not: the second document would be read as the continuation of the first.

# %%
packing = {"positions_BL": rows["positions"], "segments_BL": rows["segments"], "valid_BL": rows["valid"]}
model = jax.jit(apply)
together = model(params, rows["tokens"], **packing)
apart = np.stack([np.pad(document, (0, 12 - len(document))) for document in documents])
alone = model(params, apart, valid_BL=apart > 0)
where = [(0, 0), (0, 5), (0, 9), (1, 0), (1, 6)]  # row and start of each, as printed above
for (row, start), document, own in zip(where, documents, alone, strict=True):
    size = len(document)
    assert np.allclose(together[row, start : start + size], own[:size], atol=1e-4)
moved = jnp.abs(model(params, rows["tokens"]) - together)[0]
print(f"without segments: the first document moves by {moved[:5].max():.2f}, the second by {moved[5:9].max():.2f}")
assert moved[:5].max() < 1e-4 < 0.05 < moved[5:9].max()

# %% [markdown]
# And in the picture of gradients a packed row is made of triangles, one for each document.

# %%
first = {name: array[:1] for name, array in packing.items()}
tokens = jnp.asarray(rows["tokens"][:1])
triangles = influence(**first)
assert (triangles[~np.asarray(both(side, side)[0, 0])] == 0).all()
T.heat_map(triangles, xlabel="input", ylabel="output", label="gradient")
