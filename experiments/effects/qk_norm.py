from experiments.bases import on_bases
from transformer.mixers.attention.head_norms import QKNorm
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Norms of queries and keys keep a high learning rate from hurting.",
    family="attention",
    source="Wortsman et al. 2023, arXiv:2309.14322, figure 1",
    published="Rates up to .3 train 1.2B parameters with it; without it they diverge.",
    expected={"plain": "better", "modern": "better"},
    recipe="One rate for all, .03: fifteen times the best one.",
    study=on_bases("qk_norm", {"model.mixer.parts": (QKNorm(),)}, learning_rates=(0.03,)),
)
