"""The results of a run: what its replicas came to on the held-out part."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from transformer.data.dataset import Dataset
from transformer.data.tokenizers import Tokenizer
from transformer.objectives.objective import Sums
from transformer.training.asked import AskedRun


@dataclass(frozen=True, repr=False)
class Outcome(AskedRun):
    """The results of all replicas; arrays have a leading axis R."""

    data: Dataset
    loss_by_position: np.ndarray
    """(R, L) validation loss at each position of a block, in nats."""
    by_batch: Sums
    """Sums (R, N) over each batch of the validation split, in its order."""
    tokens_per_second: float
    """Training throughput of all replicas together, from the second dispatch on."""
    seconds: float
    """Wall time of training and evaluation, over all resumed parts, compilation included."""

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return self.data.tokenizers

    @property
    def classes(self) -> tuple[str, ...]:
        return getattr(self.data, "classes", ())

    @property
    def _held_out(self) -> Mapping[str, np.ndarray]:
        return getattr(self.data, "validation", {})


def scores(sums: Sums) -> dict[str, np.ndarray]:
    """Loss in nats per label, and the shares of labels and of sequences that are right, (R,) each."""
    labels = sums.weight.sum(-1)
    loss = (sums.loss.sum(-1) / labels).astype(np.float64)
    return {"loss": loss, "accuracy": sums.correct / labels, "exact_match": sums.exact / sums.sequences}
