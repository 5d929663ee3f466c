"""Cautious AdamW against AdamW (Liang et al. 2024)."""

from experiments.bases import longer, on_bases
from transformer.runs.wrapped_rules import Cautious
from transformer.study.claim import Claim

CLAIM = Claim(
    text="AdamW that masks updates against the gradient (cautious) is faster.",
    family="optimizers",
    source="Liang, Chen, Liu and Liu 2024, arXiv:2411.16085",
    published="Pretraining of Llama and MAE: up to 1.47 times as fast as AdamW.",
    speed=1.47,
    expected={"plain": "better", "modern": "better"},
    recipe="The mask is scaled by its mean, as there. Their Llama of 60M on C4 has no weight decay, our arms have .1.",
    study=on_bases("cautious", {"optimizer.rule": Cautious()}),
)
LONGER = longer(
    CLAIM,
    found="A third of the lead is left in both bases, .027 of .085 and .039 of .117.",
)
