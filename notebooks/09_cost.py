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
# # What it costs
#
# At the end you will be able to
#
# - count the operations of attention and of a recurrent layer, and say from which length on which one is cheaper,
# - measure both without fooling yourself,
# - see where the memory of exact attention goes, and attention in blocks that does without it,
# - and say what a cache saves in generation.

# %%
# In a hosted notebook, first: %pip install git+ADDRESS_OF_THIS_REPOSITORY
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import transformer as T
from transformer.analysis.counts import product_flops

D = 128


# %% [markdown]
# ## Counted
#
# Self-attention of $n$ tokens of size $d$ has two products with every pair of tokens: the scores $QK^\top$ and the
# mixture $AV$. Each takes $n^2 d$ multiplications and as many additions: $4 d n^2$ together. A recurrent layer
# $h_t = \tanh(W x_t + U h_{t-1})$ has two products with a $d \times d$ matrix for each token: $4 d^2 n$. The library
# counts the products in the traced program of any function; nothing has to run.


# %%
def attend(x_LD, attention=T.attention):
    x, places = x_LD[None, :, None], T.Tokens.at(jnp.arange(len(x_LD)))
    return attention(x, x, x, queries=places, keys=places, mask=T.Causal()).out


def recur(x_LD):
    W, U = 0.01 * jnp.ones((2, D, D))

    def step(h, x):
        h = jnp.tanh(x @ W + h @ U)
        return h, h

    return jax.lax.scan(step, jnp.zeros(D), x_LD)[1]


for n in (16, D, 1024):
    flops = [product_flops(jax.make_jaxpr(f)(jnp.zeros((n, D))).jaxpr) for f in (attend, recur)]
    print(f"n = {n:4d}: attention {flops[0] / 1e6:7.1f} MFLOP, recurrent {flops[1] / 1e6:7.1f} MFLOP")
    assert flops == [4 * D * n**2, 4 * D**2 * n]

# %% [markdown]
# $O(d n^2)$ against $O(d^2 n)$: equal at $n = d$. Below it attention is cheaper, and above it each doubling of the text
# costs attention four times as much and the recurrent layer twice.
#
# A whole block of a transformer also has its four projections, $8 d^2 n$, and a feed-forward layer four times as wide,
# $16 d^2 n$. These do not grow with $n^2$, so the quadratic part is half of a block only where $4 d n^2 = 24 d^2 n$:
# at $n = 6d$.

# %%
block = T.ModelConfig(vocab_size=1, d_model=D, num_layers=1)
for n in (D, 6 * D, 24 * D):
    total = T.forward_flops(block.replace(max_length=n)) - 2 * n * D  # without the logits of one token
    share = 4 * D * n**2 / total
    print(f"n = {n:4d} = {n // D:2d} d: quadratic part {share:.2f} of a block")
    assert np.isclose(share, n / (n + 6 * D))

# %% [markdown]
# ## Measured
#
# Three rules: compile first and do not time it; wait for the result with `block_until_ready`, since JAX returns before
# the work is done; repeat, and take the median.


# %%
def seconds(function, *args, rounds=5):
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


lengths = np.array([16, 64, 256, 1024, 4096])
inputs = [jax.random.normal(jax.random.key(0), (n, D)) for n in lengths]
layers = {"attention": jax.jit(attend), "recurrent": jax.jit(recur)}
measured = {name: np.array([seconds(layer, x) for x in inputs]) for name, layer in layers.items()}

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for name, power in (("attention", 2), ("recurrent", 1)):
    left.plot(lengths, 4 * D ** (3 - power) * lengths**power, "o-", label=name)
    right.plot(lengths, measured[name], "o-", label=name)
for ax, title in ((left, "operations"), (right, "seconds")):
    ax.set(title=title, xlabel="n", xscale="log", yscale="log")
    ax.legend()

# %%
for i, n in enumerate(lengths):
    print(f"n = {n:4d}: " + ", ".join(f"{name} {1e3 * times[i]:8.3f} ms" for name, times in measured.items()))
growth = {name: np.log(times[-1] / times[-2]) / np.log(4) for name, times in measured.items()}
print("time grows with n to the power", {name: round(float(power), 2) for name, power in growth.items()})
print("attention is faster at n =", lengths[measured["attention"] < measured["recurrent"]])
assert measured["attention"][-1] > 3 * measured["recurrent"][-1]

# %% [markdown]
# The recurrent layer's time grows about with $n$. That of attention grows with $n^2$ and, once its weights do not fit
# into the processor's cache any more, faster. Where the lines cross is not quite where the operations do, at $n = d$:
# on two cores it was anywhere from $n$ = 64 to 1024, depending on what else the machine had to do. For short texts
# attention is ahead of its count: the recurrent layer's products are small and have to wait for each other, while
# attention does everything at once. On a GPU, which can do thousands of things at once, that counts for more. It is
# the other reason, besides distant words, why transformers replaced recurrent networks.
#
# ## Memory
#
# Exact attention writes down all $n^2$ weights. `T.chunked_attention` takes the same arguments and goes through keys
# block by block with an online softmax, so that the weights are never all there. The compiler says what each needs.


# %%
def megabytes(attention, n):
    compiled = jax.jit(functools.partial(attend, attention=attention)).lower(jnp.zeros((n, D))).compile()
    return compiled.memory_analysis().temp_size_in_bytes / 2**20


long = [512, 1024, 2048, 4096]
memory = {f.__name__: [megabytes(f, n) for n in long] for f in (T.attention, T.chunked_attention)}
for name, sizes in memory.items():
    print(f"{name:18s}", ", ".join(f"n = {n}: {size:6.1f} MB" for n, size in zip(long, sizes, strict=True)))
assert memory["attention"][-1] > 12 * memory["attention"][-3]
assert memory["chunked_attention"][-1] < 5 * memory["chunked_attention"][-3]

# %%
x = inputs[-1]
chunked = jax.jit(functools.partial(attend, attention=T.chunked_attention))
assert np.allclose(chunked(x), layers["attention"](x), atol=1e-4)
print(f"n = {len(x)}: exact {1e3 * measured['attention'][-1]:.0f} ms, chunked {1e3 * seconds(chunked, x):.0f} ms")

# %% [markdown]
# The same numbers, and memory that grows with $n$ and not with its square. At this length it was also two to three
# times faster: under a causal mask the blocks in the future are not computed at all, and a small block stays in the
# processor's cache.
#
# ## Generation
#
# A model writes one token at a time. Without a cache it reads the whole text again for each: $n$ passes over $n$
# tokens. With a cache the keys and values of the past are kept, and each pass is over one token. We let a model of
# random parameters write in both ways. `T.generate` has a cache.

# %%
config = T.ModelConfig(vocab_size=50, d_model=D, num_layers=2, max_length=512, initializer=T.FanIn())
params, apply = T.split(T.LanguageModel(config, key=jax.random.key(0)))
prompt = jnp.array([[1, 2, 3, 4]])


@functools.partial(jax.jit, static_argnums=1)
def without_cache(params, count):
    def write(i, tokens):
        logits = apply(params, tokens)  # the future is there, as zeros, and masked
        return tokens.at[:, i + 1].set(logits[:, i].argmax(-1))

    tokens = jnp.zeros((1, 4 + count), jnp.int32).at[:, :4].set(prompt)
    return jax.lax.fori_loop(3, 3 + count, write, tokens)[:, 4:]


def with_cache(params, count):
    return T.generate(apply, params, prompt, num_tokens=count).tokens_BT


# %%
times = {}
for count in (60, 252):
    assert (without_cache(params, count) == with_cache(params, count)).all()
    times[count] = seconds(without_cache, params, count, rounds=3), seconds(with_cache, params, count, rounds=3)
    print(f"{count} tokens: {1e3 * times[count][0]:6.1f} ms without a cache, {1e3 * times[count][1]:6.1f} ms with it")
assert times[252][0] > 2 * times[252][1]

# %% [markdown]
# The same tokens, ten and more times faster, and the longer the text the more there is to save. The price is memory:
# keys and values of every layer, $2 N n d$ numbers for $N$ layers and a text of $n$ tokens.
