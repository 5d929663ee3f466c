"""The objective of a model that translates."""

from dataclasses import dataclass

from jax import lax

from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.objectives.objective import TokenCrossEntropy


@dataclass(frozen=True)
class SequenceToSequence(TokenCrossEntropy):
    """Cross-entropy of each target token given the source and the target tokens before it.

    The batch holds `source` (B, S), `source_valid`, `target` (B, L + 1), which begins with the start
    token, and `weights` (B, L).
    """

    name = "sequence_to_sequence"
    needs = EncoderDecoderConfig

    def limits(self, model):
        return {"source": model.source_vocab_size, "target": model.vocab_size}

    def labels(self, batch):
        return batch["target"][..., 1:]

    def __call__(self, apply, params, batch, key):
        inputs, weights_BL = (batch["source"], batch["target"][:, :-1]), self.weights(batch)
        # Tokens after the last label are padding: no loss depends on them, and neither should the penalty.
        valid = {"source_valid_BS": batch["source_valid"], "valid_BL": lax.cummax(weights_BL, 1, reverse=True) > 0}
        logits, penalty = self.answer(apply, params, *inputs, **valid, key=key)
        return self.sums(logits, self.labels(batch), weights_BL, penalty)
