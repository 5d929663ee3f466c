from experiments.bases import on_bases
from transformer.runs.rules import AdamW
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A second moment over 20 steps (β₂ = .95) is better than one over 1,000 (.999).",
    family="optimizers",
    source="Brown et al. 2020 (GPT-3), appendix B",
    published="Used without an ablation.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("beta2", {"optimizer.rule": AdamW(beta2=0.95)}, {"optimizer.rule": AdamW(beta2=0.999)}),
)
