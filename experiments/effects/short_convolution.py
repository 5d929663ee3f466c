from experiments.bases import on_bases
from transformer.mixers.attention.short_convolution import ShortConvolution
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A short convolution of queries, keys and values makes learning faster.",
    family="attention",
    source="So et al. 2021, arXiv:2109.08668 (multi-DConv-head attention)",
    published="With squared ReLU, Primer-EZ: the quality of a transformer at about half of its compute.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("short_convolution", {"model.mixer.parts": (ShortConvolution(),)}),
)
