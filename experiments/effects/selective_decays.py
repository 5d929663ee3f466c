"""Decays that depend on the input, against trained ones that do not (Gu and Dao 2023; Yang et al. 2024)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from experiments.bases import LONGER_RATES, on_text, recurrent
from transformer.functional.linear_recurrences import Update
from transformer.mixers.recurrent.gla import GatedLinearAttention
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.study.claim import Claim


@dataclass(frozen=True)
class FixedGLA(GatedLinearAttention):
    """log α = log σ(b) / 16: each feature of the key has a decay of its own, the same at every token."""

    name = "fixed_gla"

    def gates(self, model):
        return {"forget_bias": super().gates(model)["forget_bias"]}

    def update(self, q_BLHK, k_BLHK, v_BLHV, x_BLD, params):
        forget_HK = params["forget_bias"].reshape(self.key_heads, -1)
        log_decay = jnp.broadcast_to(jax.nn.log_sigmoid(self.shared(forget_HK[None, None])), k_BLHK.shape)
        return Update(q_BLHK * q_BLHK.shape[-1] ** -0.5, k_BLHK, v_BLHV, log_decay / self.temperature)


@dataclass(frozen=True)
class FixedMamba2(Mamba2):
    """Δ = softplus(b): each head has a step of its own, the same at every token."""

    name = "fixed_mamba2"

    def gates(self, model):
        return {name: parameter for name, parameter in super().gates(model).items() if name != "step"}

    def update(self, q_BLHK, k_BLHK, v_BLHV, x_BLD, params):
        step_H1 = jax.nn.softplus(params["step_bias"])[:, None]
        log_decay = jnp.broadcast_to(-jnp.exp(params["fading"])[:, None] * step_H1, (*v_BLHV.shape[:3], 1))
        return Update(q_BLHK, k_BLHK, step_H1 * v_BLHV, log_decay)


ARMS = {
    "fixed gla": recurrent(FixedGLA()),
    "gla": recurrent(GatedLinearAttention()),
    "fixed gla, convolution": recurrent(FixedGLA(convolution=4)),
    "gla, convolution": recurrent(GatedLinearAttention(convolution=4)),
    "fixed mamba2": recurrent(FixedMamba2()),
    "mamba2": recurrent(Mamba2()),
}

CLAIM = Claim(
    text="A recurrence predicts text better where its decays depend on the input.",
    family="recurrences",
    source=(
        "Gu and Dao 2023 (Mamba), arXiv:2312.00752, section 4.6, on selective parameters; Yang et al. 2024 (GLA), "
        "arXiv:2312.06635, table 2"
    ),
    published=(
        "Mamba with about 350M parameters: perplexity 10.93 with nothing that depends on the input, 9.81 with Δ alone. "
        "WikiText, 340M and 15B tokens: RetNet, with fixed decays, 32.33, GLA 28.65 (all from memory)."
    ),
    expected={"in gla": "better", "in gla, convolution": "better", "in mamba2": "better"},
    recipe=(
        "The same mixer in both arms of a question, with the projection that makes decays of the input or without: "
        "trained decays for each head of Mamba2, and for each feature of GLA. Keys and queries depend on the input "
        "in all arms. 32 characters: what is forgotten is not for want of room."
    ),
    study=on_text(
        "selective_decays",
        ARMS,
        match="parameters",
        learning_rates=LONGER_RATES,
        contrasts={
            "in gla": {"gla": 1.0, "fixed gla": -1.0},
            "in gla, convolution": {"gla, convolution": 1.0, "fixed gla, convolution": -1.0},
            "in mamba2": {"mamba2": 1.0, "fixed mamba2": -1.0},
        },
    ),
    found=(
        "GLA gains .18, and nothing if a short convolution stands before the recurrence, as one does in Mamba2, which "
        "gains nothing either: fresh seeds exclude a gain of .02 for both. The convolution by itself is worth .30 to "
        "GLA with fixed decays. This would fit if at this size decays that depend on the input were another way to see "
        "the tokens just before, which was not tested; where a new recurrence comes with both, its results do not say "
        "which of them helps. The question with a convolution was added when the other two were answered."
    ),
)
