"""What does each choice between GPT-2 and Llama contribute? Leave one out of all, add one to none, or combine them.

    python -m experiments.gpt_to_llama                           two cores: minutes; all choices but each
    python -m experiments.gpt_to_llama --design add_one_in       each choice alone
    python -m experiments.gpt_to_llama --arms gpt norm position feed_forward.activation --design factorial

The arms are made from the difference of the two configs. A gated layer has half as many parameters again;
`--match parameters` narrows it.

Found with `--seeds 8 --learning-rates 3e-3 1e-2 3e-2` (2 layers, d 64, 300 steps; jax 0.10.2, two cores with other
work, 2026-11-24), nats per token: all of Llama's choices, and all but each, against all:

    all                      2.1272 ± 0.0157
    − mixer.num_kv_heads     2.1024 ± 0.0215  -0.0247 [-0.0698, +0.0109]  unresolved
    − mixer.bias             2.1131 ± 0.0133  -0.0141 [-0.0498, +0.0119]  unresolved
    − feed_forward.activation  2.1632 ± 0.0217  +0.0361 [-0.0062, +0.0746]  unresolved
    − feed_forward.bias      2.1031 ± 0.0174  -0.0240 [-0.0651, +0.0123]  unresolved
    − norm                   2.1270 ± 0.0152  -0.0002 [-0.0354, +0.0243]  unresolved
    − position               2.2818 ± 0.0086  +0.1546 [+0.1181, +0.1814]  worse
    − head.tied              2.0821 ± 0.0152  -0.0451 [-0.0796, -0.0164]  better
    − optimizer.rule.beta2   2.1180 ± 0.0203  -0.0091 [-0.0577, +0.0297]  unresolved
    base                     2.3183 ± 0.0130  +0.1912 [+0.1587, +0.2194]  worse

and the factorial of three of them:

    main effect: norm                                +0.001 [-0.022, +0.021]  unresolved
    main effect: position                            -0.225 [-0.248, -0.197]  better
    main effect: feed_forward.activation             -0.055 [-0.079, -0.027]  better
    interaction: norm × position                     +0.006 [-0.021, +0.043]  unresolved
    interaction: norm × feed_forward.activation      -0.007 [-0.037, +0.014]  unresolved
    interaction: position × feed_forward.activation  -0.072 [-0.121, -0.032]  better

Of eight choices rotary positions make nearly all of the difference, and a head of its own costs loss at this size.
The gate helps with rotary positions (2.133 to 2.039) and not with learned ones (2.318 to 2.309), which one factor at a
time would not have shown. The best rate was the lowest tried in most arms.
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
    run_study("from GPT-2 to Llama", arms, presets, __doc__)


if __name__ == "__main__":
    cli.main(main)
