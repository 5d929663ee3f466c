"""Lion against AdamW (Chen X. et al. 2023)."""

from experiments.bases import longer, on_bases
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
    speed=2.0,
    expected={"plain": "not worse", "modern": "not worse"},
    recipe=(
        "β of (.95, .98) as there for language, rates of its own, .0001 to .002, and 4 times the weight decay of "
        "AdamW, where the paper has 3 to 10 times as much; batches of 8."
    ),
    study=on_bases(
        "lion",
        {
            "optimizer.rule": Lion(0.95, 0.98),
            "optimizer.learning_rate": (1e-4, 3e-4, 5e-4, 1e-3, 2e-3),
            "optimizer.weight_decay": 0.4,
        },
    ),
    found="Batches of 256 tokens are the likely reason: the paper finds that its gain grows with the batch.",
)
LONGER = longer(
    CLAIM,
    found=(
        "Behind by .136 in the plain base, where one run of eight leaves it open, and by .067 in the modern one; after "
        "a quarter of the steps it was .311 and .255."
    ),
)
