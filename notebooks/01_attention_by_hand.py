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
# # Attention by hand
#
# At the end you will be able to
#
# - write self-attention from softmax(xᵀx) up to several heads in a few lines of numpy,
# - read it with tokens as columns and with tokens as rows, which papers mix,
# - say what 1/√d is for, from numbers that you measured,
# - and check each step against the functions of this library.

# %%
# In a hosted notebook, first: %pip install git+ADDRESS_OF_THIS_REPOSITORY
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import transformer as T

rng = np.random.default_rng(0)
words = ["the", "man", "ate", "the", "fish"]
N, D = len(words), 8
vector_of = {word: rng.normal(size=D) for word in dict.fromkeys(words)}


# %% [markdown]
# ## Similar tokens listen to each other
#
# A token is a vector $x_n$ of $D$ numbers. Many texts put the tokens side by side as the **columns** of a matrix
# $X$ of $D \times N$. The simplest attention has no parameters at all. The similarity of two tokens is their dot
# product $x_m^\top x_n = |x_m|\,|x_n| \cos\theta$, and a softmax makes weights of the similarities:
#
# $$A_{mn} = \frac{\exp(x_m^\top x_n)}{\sum_{m'} \exp(x_{m'}^\top x_n)}, \qquad Y = X A .$$
#
# Each **column** of $A$ sums to one: column $n$ says where token $n$ takes its new vector from.


# %%
def softmax(scores, axis):
    exponentials = np.exp(scores - scores.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


X = np.stack([vector_of[word] for word in words], axis=1)
A = softmax(X.T @ X, axis=0)
Y = X @ A
assert X.shape == Y.shape == (D, N)
assert np.allclose(A.sum(0), 1)

# %% [markdown]
# Programs put the tokens into the **rows** of a matrix, here `x` of $N \times D$, as everything in this library
# does. Nothing else changes: each matrix is transposed, products turn around, and the softmax goes along rows.

# %%
x = X.T
a = softmax(x @ x.T, axis=1)
y = a @ x
assert np.allclose(a, A.T)
assert np.allclose(y, Y.T)
T.attention_maps(a[None, None], labels=words)

# %% [markdown]
# A row of the picture is a query: the token that asks. The two tokens "the" have one vector and share their weight
# evenly. Otherwise each token mostly finds itself, since no vector is more similar to it in direction, and random
# vectors of eight numbers are long enough to make the difference large.

# %%
print(np.round(a, 2))
assert np.allclose(a[0], a[3])
assert np.allclose(a[0, 0], a[0, 3])
assert (a.argmax(1)[[1, 2, 4]] == [1, 2, 4]).all()

# %% [markdown]
# The library's function is called `T.attention`. It takes arrays with axes (batch, length, heads, head size), and
# for queries and keys a `T.Tokens` with their positions, of which masks and biases will make use later. It returns
# the output, the scores and the weights by name: `out`, `scores`, `weights`.


# %%
def library(q, k, v, **how):
    """`T.attention` of one sequence and one head, or (heads, N, size) of several."""
    q, k, v = (jnp.asarray(z if z.ndim == 3 else z[None]).transpose(1, 0, 2)[None] for z in (q, k, v))
    places = T.Tokens.at(np.arange(N))
    out = T.attention(q, k, v, queries=places, keys=places, **how).out
    return np.asarray(out[0]).transpose(1, 0, 2).squeeze()


assert np.allclose(library(x, x, x, scale=1.0), y, atol=1e-5)

# %% [markdown]
# ## A matrix that chooses what similar means
#
# All features count in $x_m^\top x_n$. A matrix $U$ of $K \times D$ with $K < D$ keeps those that matter and drops
# the rest: $x_m^\top U^\top U x_n$. That is still symmetric: *iron* finds *tool* as similar as *tool* finds *iron*.
# So queries and keys get a matrix each, $q_n = U_q x_n$ and $k_m = U_k x_m$, and the scores $k_m^\top q_n$ need not
# be symmetric any more.

# %%
K = 4
U, U_q, U_k = (rng.normal(size=(K, D)) / np.sqrt(D) for _ in range(3))
tied = X.T @ U.T @ U @ X
separate = X.T @ U_k.T @ U_q @ X
assert np.allclose(tied, tied.T)
assert not np.allclose(separate, separate.T)

# %% [markdown]
# In rows the matrices stand on the right, as kernels of $D \times K$: `q = x @ W_q`. Values have a matrix of their
# own, $v_m = \Omega_v x_m$. Then $Sa[X] = V\,\mathrm{softmax}(K^\top Q)$ with columns is
# $\mathrm{softmax}(QK^\top)V$ with rows, and the library agrees with both.

# %%
Omega_v = rng.normal(size=(D, D)) / np.sqrt(D)
by_columns = (Omega_v @ X) @ softmax((U_k @ X).T @ (U_q @ X), axis=0)
W_q, W_k, W_v = U_q.T, U_k.T, Omega_v.T
q, k, v = x @ W_q, x @ W_k, x @ W_v
by_rows = softmax(q @ k.T, axis=1) @ v
assert np.allclose(by_rows, by_columns.T)
assert np.allclose(library(q, k, v, scale=1.0), by_rows, atol=1e-5)

# %% [markdown]
# Biases are often added, $q_n = \beta_q + \Omega_q x_n$. One of the three does nothing: a bias of the keys adds
# $q_n^\top \beta_k$ to all scores of a query, and the softmax does not change when all scores grow equally.

# %%
bias = rng.normal(size=K)
assert np.allclose(library(q, k + bias, v, scale=1.0), by_rows, atol=1e-5)
assert not np.allclose(library(q + bias, k, v, scale=1.0), by_rows, atol=1e-1)

# %% [markdown]
# The parameters are three matrices, however long the text is. A fully connected layer between $N$ tokens of size
# $D$ would need $(ND)^2$ numbers, and could not read a text of another length.
#
# ## Why 1/√d
#
# Let queries and keys have independent entries with mean 0 and variance 1. Their dot product is a sum of $d$ terms
# of variance 1, so its variance is $d$ and its standard deviation $\sqrt d$. We measure it, and with it what
# happens to the softmax: the largest weight among 32 keys, and the size of its derivative.


# %%
@jax.jit
def measure(q, k, scale):
    """Deviation of scores, mean of the largest weight, and mean norm of the softmax's Jacobian."""
    scores = scale * q @ k.T
    jacobian = jax.vmap(jax.jacobian(jax.nn.softmax))(scores)
    return scores.std(), jax.nn.softmax(scores).max(-1).mean(), jnp.linalg.norm(jacobian, axis=(1, 2)).mean()


sizes = np.array([1, 4, 16, 64, 256, 1024])
pairs = {d: (rng.normal(size=(512, d)), rng.normal(size=(32, d))) for d in sizes}
plain = np.array([measure(*pairs[d], 1.0) for d in sizes])
scaled = np.array([measure(*pairs[d], d**-0.5) for d in sizes])

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
axes[0].plot(sizes, np.sqrt(sizes), "k:", label="√d")
titles = ("deviation of scores", "largest of 32 weights", "norm of the softmax's Jacobian")
for column, (ax, title) in enumerate(zip(axes, titles, strict=True)):
    ax.plot(sizes, plain[:, column], "o-", label="q·k")
    ax.plot(sizes, scaled[:, column], "o-", label="q·k / √d")
    ax.set(title=title, xlabel="d", xscale="log", yscale="linear" if column else "log")
axes[0].plot(sizes, np.sqrt(sizes), "k:", label="√d")
axes[0].legend()
# %% [markdown]
# On the left the deviation of q·k lies on √d, and with the factor it is 1 for any size. In the middle one key takes
# nearly all the weight once $d$ is large. On the right the Jacobian, by which every gradient of queries and keys is
# multiplied, grows a little at first and then fades away: a softmax that has decided does not react to small changes
# of its scores. With 1/√d it is the same at every size.

# %%
print(f"d = 1024: deviation {plain[-1, 0]:.1f}, largest weight {plain[-1, 1]:.2f}, Jacobian {plain[-1, 2]:.3f}")
print(f"scaled:   deviation {scaled[-1, 0]:.1f}, largest weight {scaled[-1, 1]:.2f}, Jacobian {scaled[-1, 2]:.3f}")
assert np.allclose(plain[:, 0], np.sqrt(sizes), rtol=0.2)
assert np.allclose(scaled[:, 0], 1, atol=0.2)
assert plain[-1, 1] > 0.9
assert plain[-1, 2] < 0.3 * plain[:, 2].max()
assert np.ptp(scaled[1:, 2]) < 0.05
print("softmax of 20, 5, -3:", np.round(softmax(np.array([20.0, 5.0, -3.0]), 0), 7))

# %% [markdown]
# 1/√d is what `T.attention` multiplies by when nothing is said. Whether it matters for *training* is a question of
# its own, with a surprise in it: `python -m experiments.scaling_by_sqrt_d`.

# %%
expected = softmax(q @ k.T / np.sqrt(K), axis=1) @ v
assert np.allclose(library(q, k, v), expected, atol=1e-5)

# %% [markdown]
# ## Several heads
#
# One attention has one matrix of weights: a token cannot take the subject from one place and the verb from another
# without mixing them. So $H$ heads have queries, keys and values of size $D/H$ each. Their outputs are concatenated,
# and a last matrix $W_o$ mixes them. In rows this is a matter of axes: (N, D) is cut to (N, H, D/H) and turned
# to (H, N, D/H), "a building of H floors" with one attention on each.

# %%
H = 2
W_q, W_k, W_v, W_o = (rng.normal(size=(D, D)) / np.sqrt(D) for _ in range(4))


def floors(z):
    """(N, D) to (H, N, D/H)."""
    return z.reshape(N, H, D // H).transpose(1, 0, 2)


q, k, v = (floors(x @ W) for W in (W_q, W_k, W_v))
weights_HNN = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(D // H), axis=-1)
heads_HNK = weights_HNN @ v
side_by_side = heads_HNK.transpose(1, 0, 2).reshape(N, D)
multi_head = side_by_side @ W_o
assert np.allclose(library(q, k, v), heads_HNK, atol=1e-5)

# %% [markdown]
# Other texts write a sum over heads, $Y = \sum_h V_h X A_h$ with a matrix $V_h$ of $D \times D$ for each head. That
# is the same: put side by side and multiplied by $W_o$ is the sum of each head times its own rows of $W_o$.

# %%
summed = sum(heads_HNK[h] @ W_o[h * D // H : (h + 1) * D // H] for h in range(H))
assert np.allclose(summed, multi_head)
V_0 = (W_v[:, : D // H] @ W_o[: D // H]).T
assert np.linalg.matrix_rank(V_0) == D // H
T.attention_maps(weights_HNN[None], labels=words)

# %% [markdown]
# The two heads look at different tokens, already with random matrices. Each $V_h$ that is made in this way has rank
# $D/H$ only; a sum over heads with full matrices is more general and costs more: `T.Attention(merge=T.SumHeads())`.
#
# ## The same in a model
#
# The attention of a real model is no other. We take the first layer of a language model, read what goes in and what
# comes out by name, and calculate the second from the first with the model's four kernels.

# %%
config = T.ModelConfig(
    vocab_size=10,
    d_model=D,
    num_layers=1,
    causal=False,
    mixer=T.Attention(num_heads=H),
    position=None,
    initializer=T.FanIn(),
)
model = T.LanguageModel(config, key=jax.random.key(0))
params, apply = T.split(model)
tokens = jnp.array([[1, 2, 3, 1, 4]])
_, found = T.run_with_cache(apply, params, tokens, names="blocks.0.attention.*")
own = model.blocks[0].attention
z = np.asarray(found["blocks.0.attention.in"][0])
q, k, v = (floors(z @ layer.kernel[...]) for layer in (own.query, own.key, own.value))
weights = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(D // H), axis=-1)
out = (weights @ v).transpose(1, 0, 2).reshape(N, D) @ own.out.kernel[...]
assert np.allclose(weights, found["blocks.0.attention.pattern"][0], atol=1e-5)
assert np.allclose(out, found["blocks.0.attention.out"][0], atol=1e-5)

# %% [markdown]
# ## What attention does not know
#
# Nothing in all this says which token comes first. When the tokens are put into another order, the outputs are
# the same in that other order: attention is **equivariant** to permutations. (It is sometimes called invariant;
# that would mean that the outputs do not change at all, which only holds for a mean over them.) "The man ate the fish"
# and "the fish ate the man" are the same set of vectors to it.

# %%
order = np.array([0, 4, 2, 3, 1])
print(" ".join(words), "->", " ".join(words[i] for i in order))
assert np.allclose(library(x[order], x[order], x[order]), library(x, x, x)[order], atol=1e-5)
logits = apply(params, tokens)
assert np.allclose(apply(params, tokens[:, order]), logits[:, order], atol=1e-5)
assert np.allclose(apply(params, tokens[:, order]).mean(1), logits.mean(1), atol=1e-5)

# %% [markdown]
# The whole model has the property too: norms and feed-forward layers look at one token at a time. A position that is
# added to the input ends it, as does a causal mask, which is the next notebook.

# %%
placed = config.replace(position=T.Sinusoidal())
params, apply = T.split(T.LanguageModel(placed, key=jax.random.key(0)))
moved = np.abs(apply(params, tokens[:, order]) - apply(params, tokens)[:, order]).max()
print(f"with positions the two orders differ by {moved:.2f}")
assert moved > 1e-3
