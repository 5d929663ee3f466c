"""MuonH against Muon (modded-nanogpt; nanochat)."""

from experiments.bases import on_bases
from transformer.core.parameters import FanIn
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
    recipe=(
        "Initial matrices of all arms have the variance 1/fan-in: what is constant is their norm, and modded-nanogpt "
        "chooses it for MuonH. MuonH has rates of its own, .01 to .16: they are angles."
    ),
    study=on_bases(
        "hyperball",
        {
            "optimizer.rule": Hyperball(),
            "optimizer.learning_rate": (1e-2, 2e-2, 4e-2, 8e-2, 1.6e-1),
            "model.initializer": FanIn(),
        },
        {
            "optimizer.rule": Muon(),
            "optimizer.learning_rate": (4e-3, 8e-3, 1.6e-2, 3.2e-2),
            "model.initializer": FanIn(),
        },
    ),
    found=(
        "Level or a little ahead. Tuned runs of the source are level, so *better* is more than it says. With the "
        "bases' own matrices of deviation .02 and .01, whose norms are up to eleven times smaller than those of "
        "modded-nanogpt, MuonH was behind by .111 and .151, and after 2,000 steps by .111 and .059; not asked again "
        "after so many."
    ),
)
