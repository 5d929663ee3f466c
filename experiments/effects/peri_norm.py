"""Peri-LN against pre-norm (Kim J. et al. 2025)."""

from experiments.bases import longer, on_bases
from transformer.residuals.residual import PeriNorm
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A norm also after each sublayer (Peri-LN) is better than pre-norm.",
    family="residuals",
    source="Kim J. et al. 2025, arXiv:2502.02732",
    published=(
        "30B tokens, mean of benchmarks: 51.57 against 49.69 at 400M, 58.56 against 56.69 at 3.2B; pre-norm "
        "diverges in 1 to 2 of 5 runs, Peri-LN in none. At 400M post-norm that is well tuned is as good as pre-norm "
        "(as reported by others)."
    ),
    expected={"plain": "better", "modern": "better"},
    recipe="Two layers in float32, in which activations have little room to grow.",
    study=on_bases("peri_norm", {"model.residual": PeriNorm()}),
)
LONGER = longer(
    CLAIM,
    found=("Half of the lead in the modern base is left, .033 of .074."),
)
