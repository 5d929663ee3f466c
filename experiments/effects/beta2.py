"""The second moment of AdamW over 20 or 1,000 steps (Marek et al. 2025)."""

from experiments.bases import longer, on_bases
from transformer.runs.rules import AdamW
from transformer.study.claim import Claim

CLAIM = Claim(
    text="With small batches a second moment over 20 steps (β₂ = .95) is worse than one over 1,000 (.999).",
    family="optimizers",
    source="Marek et al. 2025, arXiv:2507.07101",
    published=(
        "The memory should be constant in tokens: .95 at a batch of 512 becomes .9999 at a batch of 1. GPT-3 (Brown "
        "et al. 2020) uses .95 without an ablation (as reported by others)."
    ),
    expected={"plain": "worse", "modern": "worse"},
    recipe="A batch has 8 sequences of 32 characters; a tenth of the steps is warm-up in both arms.",
    study=on_bases("beta2", {"optimizer.rule": AdamW(beta2=0.95)}, {"optimizer.rule": AdamW(beta2=0.999)}),
)
LONGER = longer(CLAIM)
