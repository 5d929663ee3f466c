from experiments.bases import on_bases
from transformer.mixers.attention.heads import DifferentialHeads
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Differential attention is better at equal parameters.",
    family="attention",
    source="Ye et al. 2024, arXiv:2410.05258, figure 3",
    published="The loss of a transformer with 65 % of its parameters or tokens.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("differential", {"model.mixer.heads": DifferentialHeads()}, match="parameters"),
)
