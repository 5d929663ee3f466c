from experiments.bases import on_bases
from transformer.mixers.attention.sharing import ValueResidual
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Adding the values of the first layer to those of the others (ResFormer) is better.",
    family="residuals",
    source="Zhou Z. et al. 2024, arXiv:2410.17897, abstract",
    published=(
        "The loss of a transformer with 16 % fewer parameters or 20 % less data; 8 layers, 82M: 2.682 against 2.739."
    ),
    expected={"plain": "better", "modern": "better"},
    study=on_bases("value_residual", {"model.mixer.sharing": ValueResidual()}),
)
