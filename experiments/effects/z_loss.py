from experiments.bases import on_bases
from transformer.objectives.objective import NextToken
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A small penalty on the normalizer of the softmax (z-loss) costs nothing.",
    family="objectives",
    source="Chowdhery et al. 2022, arXiv:2204.02311, section 5; Wortsman et al. 2023, arXiv:2309.14322, section 3.1.2",
    published="Removes the divergence of logits, the loss is the same.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("z_loss", {"objective": NextToken(z_loss=1e-4)}),
)
