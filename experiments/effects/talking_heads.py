from experiments.bases import on_bases
from transformer.mixers.attention.normalizers import TalkingHeads
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Heads that mix their scores and weights (talking heads) are better.",
    family="attention",
    source="Shazeer et al. 2020, arXiv:2003.02436",
    published="T5-base: log-perplexity 1.622 against 1.678 after 524,288 steps.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("talking_heads", {"model.mixer.normalizer": TalkingHeads()}),
)
