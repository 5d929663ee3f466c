"""Objectives of language models besides the next token."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.checks import check_not_negative
from transformer.core.errors import ConfigError
from transformer.functional.masks import Causal, Prefix
from transformer.objectives.objective import Batch, CrossEntropy, NextToken, packing_of


def _there(batch: Batch, ahead: int) -> jax.Array:
    """(B, L - ahead), 1 where the label `ahead` tokens after the next one is real and of the same document, else 0."""
    size, length = batch["tokens"].shape
    all_real = jnp.ones((size, max(length - 1 - ahead, 0)), jnp.float32)
    weights = jnp.asarray(batch["weights"], jnp.float32)[:, ahead:] if "weights" in batch else all_real
    if "segments" not in batch:
        return weights
    same = batch["segments"][:, : -1 - ahead] == batch["segments"][:, 1 + ahead :]
    return weights * same.astype(jnp.float32)


@dataclass(frozen=True)
class MultiToken(NextToken):
    """`next_token` plus `weight` times the mean cross-entropy of tokens after it (Gloeckle et al. 2024, equation 2).

    The paper's loss is the plain sum, which `weight` equal to the number of further tokens gives. Counts
    and the loss of an evaluation are those of the next token alone.
    """

    name = "multi_token"
    weight: float = 1.0
    """Factor on the mean loss of the further tokens."""
    predicts_ahead = True

    def __post_init__(self):
        super().__post_init__()
        check_not_negative(self, "weight")

    def plain(self):
        return NextToken(auxiliary=0.0)

    def __call__(self, apply, params, batch, key):
        inputs, more = batch["tokens"][:, :-1], packing_of(batch)
        logits_ABLV, penalty = self.answer(apply, params, inputs, method="predict_ahead", key=key, **more)
        labels_BL = self.labels(batch)
        sums = self.sums(logits_ABLV[0], labels_BL, self.weights(batch), penalty)
        for ahead, logits_BLV in enumerate(logits_ABLV[1:], 1):
            later = self.sums(logits_BLV[:, :-ahead], labels_BL[:, ahead:], _there(batch, ahead), 0.0)
            # Each position has the weight of its next token, so that all losses are divided by one number.
            share = self.weight / (len(logits_ABLV) - 1)
            sums = sums._replace(loss=sums.loss.at[:-ahead].add(share * later.loss))
        return sums


@dataclass(frozen=True)
class PrefixToken(NextToken):
    """`next_token` after a prefix whose tokens all see each other (Raffel et al. 2019, section 3.2.1)."""

    name = "prefix_token"
    share: float = 0.5
    """Share of the real tokens of a sequence that is prefix, in [0, 1], unless the batch holds its length `prefix`
    (B,)."""
    reads_prefixes = True
    selects = True

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.share <= 1:
            raise ConfigError(f"prefix_token.share: {self.share} is not in [0, 1]")

    def _prefix(self, batch: Batch) -> jax.Array:
        if "prefix" in batch:
            return batch["prefix"]
        size, length = self.labels(batch).shape
        length_B = batch["valid"].sum(-1) if "valid" in batch else jnp.full(size, length)
        return jnp.asarray([int(self.share * each + 1e-9) for each in range(length + 1)], jnp.int32)[length_B]

    def weights(self, batch):
        if "positions" in batch:
            positions_BL = batch["positions"][:, 1:]
        else:
            positions_BL = 1 + jnp.arange(self.labels(batch).shape[1], dtype=jnp.int32)
        rest_BL = positions_BL >= self._prefix(batch)[:, None]
        return super().weights(batch) * rest_BL.astype(jnp.float32)

    def mask(self, batch):
        return {"mask": Causal() | Prefix(self._prefix(batch))}


@dataclass(frozen=True)
class MaskedToken(CrossEntropy):
    """Cross-entropy of hidden tokens given all others (BERT, Devlin et al. 2018, section 3.1).

    Of the chosen tokens a share is replaced by the mask token, a share by a random token, and the
    rest is left as it is. The batch holds `tokens` (B, L + 1), the last of which is not read. Without a
    key the same places of every batch are chosen.
    """

    name = "masked_token"
    rate: float = 0.15
    """Share of tokens that are chosen."""
    masked: float = 0.8
    """Share of the chosen that is replaced by the mask token."""
    random: float = 0.1
    """Share of the chosen that is replaced by a random token."""
    mask_token: int = 4
    """Id of <mask>: 4 in every vocabulary with special tokens."""
    causal = False
    special = True
    selects = True

    def __post_init__(self):
        super().__post_init__()
        if not (0 < self.rate <= 1 and self.masked >= 0 and self.random >= 0 and self.masked + self.random <= 1):
            raise ConfigError(f"masked_token: rate, or masked and random, are not shares in {self}")
        if self.mask_token < 0:
            raise ConfigError(f"masked_token.mask_token: {self.mask_token} is no id of a token")

    def check(self, model):
        super().check(model)
        if model.vocab_size is not None:
            self._check_token(model.vocab_size)

    def _check_token(self, vocab_size: int) -> None:
        if self.mask_token >= vocab_size:
            raise ConfigError(f"masked_token.mask_token: {self.mask_token} is not in [0, {vocab_size})")

    def labels(self, batch):
        return batch["tokens"][..., :-1]

    def weights(self, batch):
        """Of the input tokens themselves, not of those after them: all real ones of a row in which any label counts."""
        if "valid" in batch:
            return batch["valid"].astype(jnp.float32)
        next_BL = super().weights(batch)
        return jnp.broadcast_to((next_BL > 0).any(-1, keepdims=True), next_BL.shape).astype(jnp.float32)

    def corrupt(self, tokens_BL: jax.Array, vocab_size: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(tokens the model sees, which of them were chosen), both (B, L)."""
        keys = jax.random.split(key, 3)
        chosen_BL = jax.random.uniform(keys[0], tokens_BL.shape, jnp.float32) < self.rate
        share_BL = jax.random.uniform(keys[1], tokens_BL.shape, jnp.float32)
        other_BL = jax.random.randint(keys[2], tokens_BL.shape, 0, vocab_size, tokens_BL.dtype)
        replaced_BL = jnp.where(share_BL < self.masked + self.random, other_BL, tokens_BL)
        replaced_BL = jnp.where(share_BL < self.masked, jnp.asarray(self.mask_token, tokens_BL.dtype), replaced_BL)
        return jnp.where(chosen_BL, replaced_BL, tokens_BL), chosen_BL

    def __call__(self, apply, params, batch, key):
        tokens = self.labels(batch)
        vocab_size = jax.eval_shape(lambda t: apply(params, t), tokens).shape[-1]
        self._check_token(vocab_size)
        choice = jax.random.key(0) if key is None else jax.random.fold_in(key, 1)
        seen, chosen = self.corrupt(tokens, vocab_size, choice)
        logits, penalty = self.answer(apply, params, seen, key=key, **packing_of(batch))
        return self.sums(logits, tokens, self.weights(batch) * chosen.astype(jnp.float32), penalty)
