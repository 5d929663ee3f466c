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
# # A language model in one page
#
# At the end you will be able to
#
# - go from a text to tokens, batches, a config, a trained model and a sample,
# - say what a loss in nats per character means, and what to compare it with,
# - choose a decoding strategy and see what it does to the likelihood of what is written,
# - and look at what each head of your model attends to.

# %%
# In a hosted notebook, first: %pip install git+ADDRESS_OF_THIS_REPOSITORY
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import transformer as T
from transformer.core import runtime

folder = Path(tempfile.mkdtemp())
runtime.start()  # before the first array: each core becomes a device

# %% [markdown]
# ## Text, tokens, batches
#
# The text is the prose of Python's own documentation, which comes with every Python. A token is a
# character here. The last tenth of the text is held out.

# %%
corpus = T.load_data(T.TextConfig(tokenizer=T.Char()))
start = corpus.validation[:120]
print(corpus.tokenizer.decode(start))
print(start[:24])
print(f"{len(corpus.train):,} characters to learn from, {len(corpus.validation):,} held out")
vocab_size = corpus.tokenizer.vocab_size
print(f"{vocab_size} different ones: a uniform guess costs {np.log(vocab_size):.2f} nats")

# %% [markdown]
# A model reads blocks of 64 characters and predicts at each place the next one, so that a row has 65 tokens:
# the first 64 are the inputs, the last 64 the labels. A batch is a pure function of seed and step.

# %%
config = T.preset("tiny").replace(
    {
        "model.d_model": 96,
        "model.max_length": 64,
        "model.position": T.RoPE(),
        "model.mixer.sparsity": T.SlidingWindow(64),
        "optimizer.rule": T.Muon(),
        "optimizer.learning_rate": 2e-2,
        "optimizer.warmup_steps": 50,
    },
    steps=450,
    batch_size=16,
    evaluate_every=100,
)
config = corpus.complete(config)  # the vocabulary
batch = corpus.train_batches(config, seed=0)[0]["tokens"]
print(batch.shape)
for row in batch[:3]:
    print(repr(corpus.tokenizer.decode(row)))

# %% [markdown]
# Every choice is a value that can be swapped: rotary positions instead of a learned table, Muon instead of
# AdamW. A window of 64 tokens changes nothing in blocks of 64. It is there for later: a model that looks
# back 64 tokens and knows only distances can write as long as it likes and never meets a distance that
# it has not seen in training.

# %%
print(f"{T.parameter_count(config.model):,} parameters, {T.train_flops(config.model) / 1e6:.0f} MFLOP a sequence")
print({name: str(getattr(config.model, name)) for name in ("mixer", "feed_forward", "norm", "residual", "position")})

# %% [markdown]
# ## Training
#
# Two runs with different seeds are one compiled program, one run on each core of this machine. `T.train`
# writes its log and its checkpoints into a folder.

# %%
outcome = T.train(config, T.grid(seeds=(0, 1)), corpus, folder / "run")
name, reference = corpus.reference()
print("validation loss of the seeds:", outcome.validation_loss.round(3), "nats per character")
print(f"{name}: {reference:.3f}")
assert (outcome.validation_loss < 1.6).all()

# %%
curves = {"training": outcome.curve("loss"), "validation": outcome.curve("validation_loss")}
T.loss_curves(curves, reference=(name, reference), ylabel="nats per character")

# %% [markdown]
# The dashed line is what counting can do: a model that looks up how often each character followed the last
# four. A loss means nothing without such a line. The difference between two seeds is the first estimate of
# what a difference between two *models* has to exceed (notebook 08).
#
# Where in a block is the loss? At the first place the model knows one character, at the last it knows 64.

# %%
places = np.arange(1, config.model.max_length + 1)
assert outcome.loss_by_position[:, 0].min() > outcome.loss_by_position[:, 32:].mean() + 0.5
T.loss_curves(
    {"": (places, outcome.loss_by_position)}, xlabel="characters known", ylabel="validation loss, nats per character"
)

# %% [markdown]
# ## Samples
#
# `T.load_run` reads a run back from its folder, now or next month: the model as a pure function, the
# parameters of the replica with the lowest loss, or of any other, and the tokenizer.

# %%
run = T.load_run(folder / "run")
params, apply, tokenizer = run.params(), run.apply, run.tokenizers["tokenizer"]

prompt = "The function "
prompts = jnp.asarray(tokenizer.encode(prompt))[None].repeat(16, 0)
strategies = {
    "greedy": T.Greedy(),
    "beam of 4": T.Beam(4),
    "top-p 0.9": T.Sample(top_p=0.9),
    "as it is": T.Sample(),
    "greedy, no 4 repeated": T.Greedy(processors=(T.NoRepeat(4),)),
}

# %%
per_character = {}
for label, strategy in strategies.items():
    rows = prompts if isinstance(strategy, T.Sample) else prompts[:1]
    made = T.generate(apply, params, rows, num_tokens=150, strategy=strategy, key=jax.random.key(0))
    per_character[label] = float(made.log_probability_B.mean()) / 150
    print(f"{label}: {per_character[label]:.2f} nats per character")
    print(f"   {prompt}{tokenizer.decode(np.asarray(made.tokens_BT[0]))!r}\n")

# %% [markdown]
# The number is the log-probability of what was written, per character, under the model itself: the loss
# with the other sign. The two strategies that look for likely text find it, and it is a loop. Sampling from
# the unchanged distribution gives text about as likely as real text; cutting off its unlikely tail lies between.
# *Likely* and *good* are two things. Forbidding every repetition of four characters breaks the loop, and
# the text is then about as unlikely as a sample without the tail (top-p).

# %%
real = -outcome.validation_loss.min()
print(f"real text of the validation part: {real:.2f}")
assert per_character["beam of 4"] > per_character["top-p 0.9"] > per_character["as it is"]
assert per_character["greedy"] > per_character["top-p 0.9"]
assert abs(per_character["as it is"] - real) < abs(per_character["greedy"] - real)

# %% [markdown]
# ## Attention maps
#
# Activations have names. `run_with_cache` returns the logits and the requested ones; `stacked` puts one
# activation of all layers into one array (layers, batch, heads, queries, keys). We read the weights of 32
# blocks of the validation part, with a sentence of ours written over the beginning of the first. The model
# is causal, so that the corner of a map is the map of the sentence alone. Under `jax.jit` the program
# computes only what is read.

# %%
sentence = "return the same value"
tokens = jnp.asarray(corpus.validation_batches(config)["tokens"][0, :, :-1])
tokens = tokens.at[0, : len(sentence)].set(tokenizer.encode(sentence))
names = "blocks.*.attention.pattern"
pattern = jax.jit(lambda *inputs: T.stacked(T.run_with_cache(apply, *inputs, names=names)[1], names))(params, tokens)
print(pattern.shape)
corner = pattern[:, 0, :, : len(sentence), : len(sentence)]
T.attention_maps(corner, labels=list(sentence.replace(" ", "␣")))

# %% [markdown]
# Rows are the characters that look, columns those that are looked at. A dark bar upright is a stretch of
# characters that all look at one place; in our run these places were often the beginnings of words.
#
# A map of one sentence is an anecdote; numbers over many sentences are not: how far back a head looks on
# average, its weight on the character just before, and the entropy of its weights, which is log n where n
# characters are looked at alike.

# %%
scores = {
    "distance, characters": T.attention_distance(pattern),
    "weight on the previous one": T.previous_token_scores(pattern),
    "entropy, nats": T.attention_entropy(pattern),
}
for label, values in scores.items():
    print(f"{label:28}", *(f"block {n}: {np.asarray(row).round(2)}" for n, row in enumerate(values)))
assert float(scores["distance, characters"].max()) < 16

# %% [markdown]
# In this short training no head learned to look far: all of them together live on the last few
# characters, as the counting model does. That agrees with the loss by place above, which hardly falls after
# the tenth character.
