"""Muon against AdamW (Jordan et al. 2024; Liu J. et al. 2025)."""

from experiments.bases import longer, on_bases
from transformer.runs.muon import Muon
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Muon needs fewer steps than AdamW.",
    family="optimizers",
    source="Liu J. et al. 2025, arXiv:2502.16982, figure 1; Jordan et al. 2024 (web note)",
    published=(
        "The loss of AdamW with about 52 % of its operations, in compute-optimal training. modded-nanogpt, track 3, "
        "124M to loss 3.28: 3,375 steps against 5,625 for an Adam that is likely under-tuned."
    ),
    speed=1 / 0.52,
    expected={"plain": "better", "modern": "better"},
    recipe="The size of the step and the weight decay are those of AdamW, as in the paper.",
    study=on_bases("muon", {"optimizer.rule": Muon()}),
    found="It takes the highest rate, .008; higher ones were not tried.",
)
LONGER = longer(
    CLAIM,
    found=(
        "Ahead by .176 and .115, where it was .292 and .253 after a quarter of the steps. In the plain base it takes "
        "the highest rate again, .016."
    ),
)
