from experiments.bases import on_bases
from transformer.runs.wrapped_rules import Cautious
from transformer.study.claim import Claim

CLAIM = Claim(
    text="AdamW that masks updates against the gradient (cautious) is faster.",
    family="optimizers",
    source="Liang et al. 2024, arXiv:2411.16085",
    published="LLaMA 1B on C4: the loss of AdamW 1.47 times as fast.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("cautious", {"optimizer.rule": Cautious()}),
)
