from experiments.bases import on_bases
from transformer.positions.contextual import Forgetting
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A forget gate on scores (forgetting transformer) is better.",
    family="positions",
    source="Lin Z. et al. 2025, arXiv:2503.02130",
    published="760M on 48B tokens: lower loss than RoPE at the length of training and beyond.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("forgetting", {"model.position": Forgetting()}),
)
