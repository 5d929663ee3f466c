"""Layers that share their parameters (Lan et al. 2019)."""

from experiments.bases import longer, on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Layers that share their parameters (ALBERT) are worse than layers of their own.",
    family="blocks",
    source="Narang et al. 2021, arXiv:2102.11972; Lan et al. 2019 (ALBERT), arXiv:1909.11942, table 4 (from memory)",
    published=(
        "T5-base (Narang et al.): loss 2.164 with 65M parameters in place of 223M, 1.838 without. ALBERT-base, "
        "embeddings of 128: mean of tasks 80.1 with all shared, 81.6 with none (from memory)."
    ),
    losses=(2.164, 1.838),
    expected={"plain": "worse", "modern": "worse"},
    recipe="One layer used twice, with half of the layers' parameters; in the papers 12 layers share one set.",
    study=on_bases("shared_layers", {"model.distinct_layers": 1}),
)
LONGER = longer(
    CLAIM,
    found="Half of the loss is left in the plain base, .049 of .109, and a third in the modern one, .012 of .035.",
)
