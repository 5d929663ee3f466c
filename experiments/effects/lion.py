from experiments.bases import on_bases
from transformer.runs.rules import Lion
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Lion is as good as AdamW.",
    family="optimizers",
    source="Chen X. et al. 2023, arXiv:2302.06675, table 7",
    published="C4 language models of 1.1B to 7.5B parameters: equal or slightly better.",
    expected={"plain": "equal", "modern": "equal"},
    recipe="Rates from a tenth to a quarter of those of AdamW, the weight decay the same.",
    study=on_bases("lion", {"optimizer.rule": Lion(), "optimizer.learning_rate": (1e-4, 3e-4, 1e-3)}),
)
