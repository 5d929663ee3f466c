"""Lion against AdamW (Chen X. et al. 2023)."""

from experiments.bases import longer, on_bases
from transformer.runs.rules import AdamW, Lion
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
        "β of (.7, .9) for Lion and of (.7, .95) for AdamW: of six pairs each the best of three other seeds in the "
        "modern base after 500 steps. The paper's (.95, .98) average over fifty steps, a tenth of these runs. Lion has "
        "rates of its own, .00025 to .004, and 4 times the weight decay of AdamW, where the paper has 3 to 10 times as "
        "much."
    ),
    study=on_bases(
        "lion",
        {
            "optimizer.rule": Lion(0.7, 0.9),
            "optimizer.learning_rate": (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3),
            "optimizer.weight_decay": 0.4,
        },
        {"optimizer.rule": AdamW(0.7, 0.95)},
    ),
    found=(
        "Level, as far as eight seeds tell. With the paper's β, against the usual (.9, .99) of AdamW, Lion was behind "
        "by .311 and .255, and in batches of 32, four times as large, by .460 and .302: it is for how many steps it "
        "averages, and not for the batch. AdamW gains .06 from its β in the modern base."
    ),
)
LONGER = longer(
    CLAIM,
    found=(
        "Ahead by .026 and .023, with fresh seeds by .023 and .014, and as much of AdamW with its usual β, whose "
        "losses are those of AdamW here but for .01. In the plain base it takes .004, the highest rate tried. With the "
        "paper's β it was behind by .136 and .067."
    ),
)
