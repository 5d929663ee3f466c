"""Properties of an encoder-decoder with any choices."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from transformer.models.build import pure_model
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.testing.comparing import close, differ
from transformer.testing.evaluation import Evaluated
from transformer.testing.properties import TOKENS
from transformer.testing.subject import LENGTH, NOW, initial_values, shaken

VALID = np.arange(LENGTH) < np.array([[LENGTH], [NOW]])
"""The second source is padded."""


class Pair:
    """An encoder-decoder under test, with random parameters."""

    def __init__(self, config: EncoderDecoderConfig):
        self.config = config
        _, self.apply = pure_model(config)
        self.params = shaken(initial_values(config))

    @functools.cached_property
    def both(self) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
        """Maps (params, source, target, source_valid) to logits of the target: at once, and token by token, cached."""

        def run(params, source_BS, target_BL, valid_BS):
            logits_BLV = self.apply(params, source_BS, target_BL, source_valid_BS=valid_BS)
            cache = self.apply(params, *target_BL.shape, source_BS, valid_BS, method="start")
            read = self.apply(params, method="reader")

            def one(cache, token_B):
                logits_B1V, cache = read(token_B[:, None], cache)
                return cache, logits_B1V[:, 0]

            _, cached_LBV = jax.lax.scan(one, cache, target_BL.T)
            return logits_BLV, jnp.moveaxis(cached_LBV, 0, 1)

        return functools.partial(Evaluated(run), self.params)


def translates(config: EncoderDecoderConfig) -> None:
    """Logits are finite, cached or not; they depend on the source and not on its padding or on later tokens."""
    pair, target = Pair(config), TOKENS[:, ::-1]

    def of(source, target):
        return pair.both(source, target, VALID)

    logits, cached = of(TOKENS, target)
    assert np.isfinite(logits).all(), "logits are not finite"
    close(cached, logits, "cached logits are others")
    padded, _ = of(np.where(VALID, TOKENS, TOKENS[:, ::-1]), target)
    assert (padded == logits).all(), "logits change with the padding of the source"
    other, _ = of(target, target)
    differ(other, logits, "the source does not matter")
    changed, _ = of(TOKENS, np.where(np.arange(LENGTH) < NOW, target, TOKENS))
    assert (changed[:, :NOW] == logits[:, :NOW]).all(), "logits change with a later token"
