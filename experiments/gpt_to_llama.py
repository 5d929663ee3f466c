"""What does each choice between GPT-2 and Llama contribute? Leave one out of all, add one to none, or combine them.

    python -m experiments.gpt_to_llama                           two cores: minutes; all choices but each
    python -m experiments.gpt_to_llama --design add_one_in       each choice alone
    python -m experiments.gpt_to_llama --arms gpt norm position feed_forward.activation --design factorial

The arms are made from the difference of the two configs. Gated layers have two thirds of the width, so that all have
about as many parameters.
"""

from experiments import cli
from experiments.study_command import budgets, run_study
from transformer.activations.activation import GLU, SiLU
from transformer.mixers.attention.attention import Attention
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.positions.rotary import RoPE
from transformer.runs.config import RunConfig
from transformer.study.designs import between

GPT = {
    "model.norm": LayerNorm(),
    "model.mixer.bias": ("query", "key", "value", "out"),
    "model.feed_forward.bias": True,
    "optimizer.rule.beta2": 0.999,
}
"""Learned positions, GELU and a tied head are the default."""
LLAMA = {
    "model.norm": RMSNorm(),
    "model.position": RoPE(),
    "model.mixer": Attention(num_heads=4, num_kv_heads=2),
    "model.feed_forward.bias": False,
    "model.feed_forward.activation": GLU(gate=SiLU()),
    "model.head.tied": False,
    "optimizer.rule.beta2": 0.95,
}


def main() -> None:
    presets = {name: command.replace(GPT) for name, command in budgets("gpt_to_llama", design="leave_one_out").items()}
    gpt = cli.fields_of(presets["laptop"], RunConfig)
    arms = {"gpt": {}, **between(gpt, gpt.replace(LLAMA))}
    run_study("from GPT-2 to Llama", arms, presets, __doc__ or "")


if __name__ == "__main__":
    cli.main(main)
