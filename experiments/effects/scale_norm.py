"""ScaleNorm against LayerNorm (Nguyen and Salazar 2019)."""

from experiments.bases import longer, on_bases
from transformer.norms.norm import LayerNorm
from transformer.norms.scale_norm import ScaleNorm
from transformer.study.claim import Claim

CLAIM = Claim(
    text="One trained length for the whole vector (ScaleNorm) is better than LayerNorm on little data.",
    family="norms",
    source="Nguyen and Salazar 2019, arXiv:1910.05895, tables 3 and 6",
    published=(
        "Five small pairs of TED and IWSLT15, with pre-norm and FixNorm: .49 BLEU ahead of LayerNorm on average, "
        "between 1.53 and -.20. WMT14 en-de, post-norm: 27.57 with it and FixNorm against 27.58."
    ),
    expected={"plain": "better", "modern": "better"},
    recipe="Without FixNorm. LayerNorm in the modern base too, where this was first asked of RMSNorm.",
    study=on_bases("scale_norm", {"model.norm": ScaleNorm()}, {"model.norm": LayerNorm()}),
)
LONGER = longer(
    CLAIM,
    found=(
        "What is opposite in the modern base, .015, is .004 with fresh seeds, and no difference of the size of the "
        "margin: it may have been chance."
    ),
)
