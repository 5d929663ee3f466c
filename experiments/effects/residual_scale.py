"""Smaller initial values on residual branches (Radford et al. 2019)."""

from experiments.bases import longer, on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text=(
        "Smaller initial values on what is added to the stream, by 1/√(2 layers), make no difference in a shallow "
        "model."
    ),
    family="initial values",
    source="Radford et al. 2019 (GPT-2), section 2.3",
    published="Used by a factor of 1/√N for N residual layers, without an ablation.",
    measured=False,
    expected={"plain": "equal", "modern": "equal"},
    recipe="Two layers, so that the factor is 1/2.",
    study=on_bases("residual_scale", {"model.scale_residual_init": True}, {"model.scale_residual_init": False}),
)
LONGER = longer(CLAIM)
