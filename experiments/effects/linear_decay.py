"""A straight line to zero against a cosine (Defazio et al. 2023; Bergsma et al. 2025)."""

from experiments.bases import longer, on_bases
from transformer.runs.schedules import Cosine
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A rate that falls to 0 on a straight line is better than one on a cosine.",
    family="optimizers",
    source="Defazio et al. 2023, arXiv:2310.07831, abstract; Bergsma et al. 2025, arXiv:2502.15938 (from memory)",
    published=(
        "Ten problems of deep learning and language models: a straight line is as good as any other schedule or "
        "better, cosines among them. Bergsma et al.: language models of 610M, ahead of a cosine that ends at a tenth."
    ),
    expected={"plain": "better", "modern": "better"},
    recipe=(
        "Both end at 0 and have the same warm-up. The line is what the bases have, so all runs were there before this "
        "was asked."
    ),
    study=on_bases("linear_decay", {}, {"optimizer.schedule": Cosine(final=0.0)}),
)
LONGER = longer(CLAIM)
