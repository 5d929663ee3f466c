"""Lion against AdamW (Chen X. et al. 2023)."""

from experiments.bases import on_bases
from transformer.runs.rules import Lion
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Lion is as good as AdamW.",
    family="optimizers",
    source="Chen X. et al. 2023, arXiv:2302.06675, abstract; its repository, google/automl",
    published=(
        "Language models: similar or better; on Wiki-40B and PG-19 the perplexity of AdamW with up to 2 times less "
        "compute. The gain grows with the batch."
    ),
    expected={"plain": "equal", "modern": "equal"},
    recipe=(
        "Rates from a tenth to a quarter of those of AdamW, the weight decay the same, where the paper has 3 to 10 "
        "times as much; β of (.9, .99), where it has (.95, .98) for language; batches of 8."
    ),
    study=on_bases("lion", {"optimizer.rule": Lion(), "optimizer.learning_rate": (1e-4, 3e-4, 1e-3)}),
)
