"""MuonH against Muon (modded-nanogpt; nanochat)."""

from experiments.bases import longer, on_bases
from transformer.runs.muon import Muon
from transformer.runs.wrapped_rules import Hyperball
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Muon on matrices of constant norm (MuonH) is better than Muon.",
    family="optimizers",
    source="modded-nanogpt, track 3; nanochat, log of trials",
    published=(
        "GPT of 124M on FineWeb to loss 3.28: 3,325 steps (10 runs) against 3,375 (20 runs), and 3,250 for both "
        "when tuned. nanochat at depth 12: worse."
    ),
    speed=3375 / 3325,
    expected={"plain": "better", "modern": "better"},
    recipe="MuonH has rates of its own, .01 to .08: they are angles.",
    study=on_bases(
        "hyperball",
        {"optimizer.rule": Hyperball(), "optimizer.learning_rate": (1e-2, 2e-2, 4e-2, 8e-2)},
        {"optimizer.rule": Muon()},
    ),
    found=(
        "All four arms take the highest of their rates, .08 with constant norm and .008 without; higher ones were not "
        "tried."
    ),
)
LONGER = longer(
    CLAIM,
    found=(
        "Behind in both bases, by .111 and .059; of its own rates it takes the second, .02, in both. Likely a matter "
        "of these bases: matrices keep the norm they begin with, which modded-nanogpt chooses for MuonH, and ours, of "
        "deviation .02 and .01, are 4 to 11 times smaller. Begun with variance 1/fan-in, one run of each ends at 1.927 "
        "(MuonH, .04) and 1.953 (Muon, .008) after 500 steps in the plain base, and at 1.505 and 1.495 (without that, "
        "Muon at .016) after 2,000."
    ),
)
