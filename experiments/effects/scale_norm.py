from experiments.bases import on_bases
from transformer.norms.scale_norm import ScaleNorm
from transformer.study.claim import Claim

CLAIM = Claim(
    text="One trained length for the whole vector (ScaleNorm) is as good as LayerNorm.",
    family="norms",
    source="Nguyen and Salazar 2019, arXiv:1910.05895, section 4",
    published="IWSLT and TED, five low-resource pairs: +.2 BLEU with ScaleNorm over pre-norm LayerNorm.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("scale_norm", {"model.norm": ScaleNorm()}),
)
