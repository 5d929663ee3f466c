from experiments.bases import on_bases
from transformer.objectives.tokens import MultiToken
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Predicting a second token as well does not help the next one in small models.",
    family="objectives",
    source="Gloeckle et al. 2024, arXiv:2404.19737, figure 3",
    published="Worse below 1.3B parameters on code, better above.",
    expected={"plain": "worse", "modern": "worse"},
    study=on_bases("multi_token", {"model.predict_ahead": 1, "objective": MultiToken()}),
)
