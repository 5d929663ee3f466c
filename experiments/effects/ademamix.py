from experiments.bases import on_bases
from transformer.runs.rules import AdEMAMix
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A slow second average of gradients (AdEMAMix) makes AdamW faster.",
    family="optimizers",
    source="Pagliardini et al. 2024, arXiv:2409.03137, abstract",
    published="1.3B: the loss of AdamW with half of its tokens; the gain grows with the number of steps.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("ademamix", {"optimizer.rule": AdEMAMix(warmup=500)}),
)
