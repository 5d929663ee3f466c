"""A constant rate with a decay against a cosine (Hu et al. 2024)."""

from experiments.bases import longer, on_bases
from transformer.runs.schedules import Cosine, WarmupStableDecay
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A rate that is constant and then falls (WSD) is as good as a cosine.",
    family="optimizers",
    source="Hu et al. 2024 (MiniCPM), arXiv:2404.06395, section 4.2 and figure 5",
    published=(
        "36M parameters: the loss of a cosine that ends at the same step; a decay over a tenth of the tokens is "
        "enough (as reported by others)."
    ),
    expected={"plain": "not worse", "modern": "not worse"},
    recipe="A straight line to 0 over the last fifth, where the paper decays exponentially; the cosine ends at 0.",
    study=on_bases("wsd", {"optimizer.schedule": WarmupStableDecay()}, {"optimizer.schedule": Cosine(final=0.0)}),
    found=(
        "It is ahead, likely because in runs of 500 steps more of them at a high rate are worth more than the slow end "
        "of a cosine."
    ),
)
LONGER = longer(
    CLAIM,
    found=(
        "Ahead by .015 and .030, where it was .081 and .087 after a quarter of the steps. A straight line to 0 is "
        "ahead of this cosine too, by .028 and .016 (`linear_decay`): against that WSD is no gain in the plain base."
    ),
)
