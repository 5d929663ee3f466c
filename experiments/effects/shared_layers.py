from experiments.bases import on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Layers that share their parameters (ALBERT) are worse than layers of their own.",
    family="blocks",
    source="Lan et al. 2019, arXiv:1909.11942, table 4; Narang et al. 2021, table 1",
    published="ALBERT-base: 80.1 with all shared, 81.6 with none; T5-base: loss 2.164 against 1.838.",
    expected={"plain": "worse", "modern": "worse"},
    study=on_bases("shared_layers", {"model.distinct_layers": 1}),
)
