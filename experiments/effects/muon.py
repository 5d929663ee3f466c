from experiments.bases import on_bases
from transformer.runs.muon import Muon
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Muon needs fewer steps than AdamW.",
    family="optimizers",
    source="Liu J. et al. 2025, arXiv:2502.16982, figure 1; Jordan 2024",
    published="About twice the efficiency of AdamW in compute-optimal training.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("muon", {"optimizer.rule": Muon()}),
)
