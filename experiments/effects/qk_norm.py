"""Norms of queries and keys at a high learning rate (Wortsman et al. 2023)."""

from experiments.bases import on_bases
from transformer.mixers.attention.head_norms import QKNorm
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Norms of queries and keys keep a high learning rate from hurting.",
    family="attention",
    source="Wortsman et al. 2023, arXiv:2309.14322, section 3.1.1 and figure 1",
    published=(
        "With it 1.2B parameters train at a rate of .3; without it the rate at which training diverges falls as "
        "models grow."
    ),
    expected={"plain": "better", "modern": "better"},
    recipe="One rate for all, .03: fifteen times that of the base. No z-loss, which all arms of the paper have.",
    study=on_bases("qk_norm", {"model.mixer.parts": (QKNorm(),)}, learning_rates=(0.03,)),
)
