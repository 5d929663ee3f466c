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
# # A translator
#
# At the end you will be able to
#
# - train an encoder–decoder on pairs of texts and measure what it gets exactly right,
# - read from its cross-attention which source word each target word was taken from,
# - follow a beam search step by step, and say what it can and cannot mend.

# %%
# In a hosted notebook, first: %pip install git+ADDRESS_OF_THIS_REPOSITORY
import functools
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import transformer as T
from transformer.core import runtime
from transformer.data.scan import scan_pairs
from transformer.data.tokenizers import END, START
from transformer.inference.prompt import Prompt

folder = Path(tempfile.mkdtemp())
runtime.start()  # before the first array: each core becomes a device

# %% [markdown]
# ## Commands and actions
#
# SCAN (Lake and Baroni 2018) is a small language of commands, each with exactly one right sequence of
# actions. The library writes all 20,910 pairs from the grammar. To learn in seconds we leave out the
# words that repeat most, `around` and `thrice`, and write the rest as a file of two columns, as one would
# bring one's own parallel text.

# %%
pairs = [(c, a) for c, a in scan_pairs() if not {"around", "thrice"} & set(c.split())]
order = np.random.default_rng(0).permutation(len(pairs))
(folder / "scan.tsv").write_text("".join(f"{pairs[i][0]}\t{pairs[i][1]}\n" for i in order))
described = T.PairsConfig(source=str(folder / "scan.tsv"), validation_fraction=0.1, buckets=1)
data = T.load_data(described)
commands, references = data.test
print(
    f"{len(pairs)} pairs, {len(commands)} of them held out, at most {max(len(a.split()) for a in references)} actions"
)
for command, actions in list(zip(commands, references, strict=True))[:3]:
    print(f"{command}\n    {actions}")

# %% [markdown]
# `after` turns the order around: what comes last in the command is done first. A model that reads from left
# to right and writes as it reads cannot do that; the decoder has to look at the right place of the source.
#
# ## Training

# %%
run = T.TranslationRun(
    model=T.EncoderDecoderConfig(
        num_layers=2, d_model=64, feed_forward=T.FeedForward(d_ff=128), max_length=16, max_source_length=10,
        position=T.RoPE(), initializer=T.Xavier(),
    ),
    optimizer=T.OptimizerConfig(rule=T.Muon(), learning_rate=1e-2, warmup_steps=50, weight_decay=0.01),
    batch_size=64,
    data=described,
    steps=200,
)  # fmt: skip
run = data.complete(run)
outcome = T.train(run, T.grid(seeds=(0, 1)), data, folder / "run")
best = int(outcome.exact_match.argmax())
print("loss", outcome.validation_loss.round(3), "exact match", outcome.exact_match.round(3), "of two seeds")
assert outcome.exact_match[best] > 0.6

# %% [markdown]
# Exact match is the share of held-out commands all of whose actions are right. It was counted in one pass,
# with the right beginning given at each place. That is what greedy decoding gets right too: the first wrong
# action makes both fail, and up to there both read the same. Let us see.

# %%
params, apply = outcome.params(best), outcome.apply  # and `T.load_run(folder / "run")` has them next month
source, valid = map(jnp.asarray, data.test_sources())
inputs = {"source_BS": source, "source_valid_BS": valid}
start = jnp.full((len(source), 1), START)
greedy = T.generate(apply, params, start, num_tokens=13, stop=END, inputs=inputs)
made = [data.text(np.asarray(tokens)) for tokens in greedy.tokens_BT]
right = np.array([text == reference for text, reference in zip(made, references, strict=True)])
print(f"decoded: {right.mean():.3f}")
assert abs(right.mean() - outcome.exact_match[best]) < 0.005

# %% [markdown]
# ## Where does each action come from?
#
# We give the decoder the right translations of all held-out commands and read the weights of its
# cross-attention. Under `jax.jit` the program computes only what is read.

# %%
target = np.zeros((len(references), run.model.max_length), np.int32)
for place, actions in zip(target, references, strict=True):
    place[: len(actions.split())] = data.tokenizer.encode(actions)
before = np.insert(target, 0, START, 1)[:, :-1]


@jax.jit
def read(params, source, before, valid):
    names = "decoder.blocks.*.cross_attention.pattern"
    _, found = T.run_with_cache(apply, params, source, before, source_valid_BS=valid, names=names)
    return T.stacked(found, names)


pattern = read(params, source, before, valid)
print(pattern.shape, "layers, commands, heads, actions, words")

# %% [markdown]
# First a command with `after` that was translated rightly. Each row is the moment *before* an action is
# written: a map for each head of the two layers, and the mean of them all.

# %%
example = next(i for i in np.flatnonzero(right) if "after" in commands[i] and len(references[i].split()) == 6)
words, actions = [*commands[example].split(), "(end)"], [*references[example].split(), "(end)"]
maps = pattern[:, example, :, : len(actions), : len(words)]
T.attention_maps(maps, words, queries=actions)

# %%
T.heat_map(maps.mean((0, 1)), rows=actions, columns=words, label="weight, mean of all heads")

# %% [markdown]
# The dark places run from the upper right to the lower left: the part after the word `after` is read first. Within a
# part the weight is not always on the word one would underline: the encoder has mixed the words with their
# neighbours before.
#
# Is that more than this one example? An action names a word (`I_JUMP` is *jump*). Over all held-out commands,
# how much of the weight of each head, just before the action, lies on the places where this word stands?

# %%
named = {"I_WALK": "walk", "I_LOOK": "look", "I_RUN": "run", "I_JUMP": "jump"}
named |= {"I_TURN_LEFT": "left", "I_TURN_RIGHT": "right"}
word_of = np.full(data.tokenizer.vocab_size, -1)
for action, word in named.items():
    word_of[data.tokenizer.encode(action)] = data.source_tokenizer.encode(word)
match_BLS = word_of[target][:, :, None] == np.asarray(source)[:, None]
counted_BL = match_BLS.any(-1)

weight = (np.asarray(pattern) * match_BLS[:, None]).sum(-1)[:, counted_BL.nonzero()[0], :, counted_BL.nonzero()[1]]
alike = (match_BLS.sum(-1) / np.asarray(valid).sum(-1, keepdims=True))[counted_BL].mean()
print("weight on the word that the action names, by layer and head:")
print(weight.mean(0).round(2))
print(f"if all words were looked at alike: {alike:.2f}")
assert weight.mean(0).max() > 1.5 * alike

# %% [markdown]
# Some heads point at the word, others rather not. Nobody told them to: only right actions were rewarded. Be
# careful with the reverse: that a head looks at a word does not show that its answer depends on it, for that
# one has to change the weights and look at the result (`T.intervene`, notebook 07).
#
# ## Beam search, step by step
#
# Greedy decoding takes the likeliest action and never goes back. Beam search keeps the four likeliest
# *beginnings*. `T.Beam` is a documented state, a condition and a step, so we can walk through it: here for
# the held-out command about whose greedy translation the model is least sure. A beam that writes the end token
# leaves the live ones for the finished ones.

# %%
doubt = int(greedy.log_probability_B.argmin())
print(f"{commands[doubt]}\nright:  {references[doubt]}\ngreedy: {made[doubt]}\n")
one = {"source_BS": source[doubt : doubt + 1], "source_valid_BS": valid[doubt : doubt + 1]}
beam, num_tokens = T.Beam(4), 13
prompt = Prompt(apply, params, start[:1], num_tokens, END, None, one)
step = jax.jit(functools.partial(beam.step, prompt=prompt, read=prompt.reader()))


def show(title, tokens_WT, scores_W, count):
    print(title)
    for tokens, score in zip(np.asarray(tokens_WT), np.asarray(scores_W), strict=True):
        text = data.text(tokens[:count]).replace("I_TURN_", "").replace("I_", "").lower()
        print(f"  {score:7.2f}  {text}")


# %%
states = [jax.jit(lambda: beam.start(prompt))()]
while (state := states[-1]).step < num_tokens and not beam.settled(state)[0]:
    states.append(step(state))
for state in states:
    count, ended = int(state.step), int((state.done_lengths_BW[0] > 0).sum())
    show(f"{count} actions, {ended} ended; live:", state.live_tokens_BWT[0], state.live_scores_BW[0], count)
show("\nended, by log-probability over length:", state.done_tokens_BWT[0], state.done_scores_BW[0], num_tokens)

found = T.generate(apply, params, start[:1], num_tokens=num_tokens, strategy=beam, stop=END, inputs=one)
assert (found.tokens_BT[0] == state.done_tokens_BWT[0, 0]).all()
assert (np.diff([state.live_scores_BW[0, 0] for state in states]) <= 1e-5).all()

# %% [markdown]
# The score of a live beam is the log-probability of its actions so far, so it can only fall. Special tokens
# write nothing: an empty line is a beam that begins with one. `T.generate` finds what we found by hand.
#
# Look at what has ended. With a handful of actions to choose from, the end token is among the four best
# candidates of nearly every step, however unlikely it is. Such stubs fill the four places; the search continues
# until no live beam can still enter the ranking. With `early_stopping=True` it ends as soon as four have ended,
# even if none of them is any good. With a vocabulary of thousands that hardly happens; here it does.
#
# ## Are likelier translations better?

# %%
print(f"greedy: exact match {right.mean():.3f}")
exact, per_action = {}, {"greedy": np.asarray(greedy.log_probability_B / greedy.lengths_B)}
early = T.Beam(4, early_stopping=True)
for strategy in (beam, early):
    beams = T.generate(apply, params, start, num_tokens=num_tokens, strategy=strategy, stop=END, inputs=inputs)
    texts = [data.text(np.asarray(tokens)) for tokens in beams.tokens_BT]
    also = np.array([text == reference for text, reference in zip(texts, references, strict=True)])
    exact[strategy], per_action[strategy] = also.mean(), np.asarray(beams.log_probability_B / beams.lengths_B)
    print(f"{strategy}: exact match {also.mean():.3f}")
    print(f"   wrong became right {(also & ~right).sum()} times, right became wrong {(right & ~also).sum()} times")
    print(f"   log-probability an action {per_action[strategy].mean():.4f}, greedy {per_action['greedy'].mean():.4f}")
assert exact[beam] >= exact[early]
assert per_action[beam].mean() > per_action[early].mean()

# %% [markdown]
# The patient search is as good as greedy decoding and hardly better: where the model is sure, there is nothing
# to search for, and where it is wrong, a better search finds what the model considers likely, not what is right.
# *Look at the ranking of a search before you report a number from it.*
