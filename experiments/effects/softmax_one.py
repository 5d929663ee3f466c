from experiments.bases import on_bases
from transformer.mixers.attention.normalizers import SoftmaxOne
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A softmax that may attend to nothing has the same loss.",
    family="attention",
    source="Miller 2023, Attention is off by one; Xiao et al. 2023, arXiv:2309.17453, table 3",
    published="Pythia-160M on the Pile: perplexity as good as that of softmax.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("softmax_one", {"model.mixer.normalizer": SoftmaxOne()}),
)
