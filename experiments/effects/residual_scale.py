from experiments.bases import on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Smaller initial values on what is added to the stream, by 1/√(2 layers), are better.",
    family="initial values",
    source="Radford et al. 2019 (GPT-2), section 2.3",
    published="No ablation published.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("residual_scale", {"model.scale_residual_init": True}, {"model.scale_residual_init": False}),
)
