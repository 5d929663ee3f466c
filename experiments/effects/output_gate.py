"""A gate on the output of attention (Qiu et al. 2025)."""

from experiments.bases import longer, on_bases
from transformer.mixers.attention.gates import OutputGate
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A sigmoid gate on the output of attention is better.",
    family="attention",
    source="Qiu et al. 2025, arXiv:2505.06708",
    published=(
        "nanochat: no gain. 15B with 2.54B active: perplexity lower by .05 to .27; at 1.2B a gain within noise, by "
        "Zhao Y. et al. 2026, arXiv:2605.20798 (as reported by others)."
    ),
    expected={"plain": "better", "modern": "better"},
    recipe="A gate for each feature, as in the paper.",
    study=on_bases("output_gate", {"model.mixer.parts": (OutputGate(),)}),
)
LONGER = longer(
    CLAIM,
    found="The lead in the plain base, .041, is gone; most of that in the modern one is left, .030 of .044.",
)
