"""What does each choice between GPT-2 and Llama contribute? Leave one out of all, add one to none, or combine them.

    python -m experiments.gpt_to_llama                           two cores: minutes; all choices but each
    python -m experiments.gpt_to_llama --design add_one_in       each choice alone
    python -m experiments.gpt_to_llama --arms gpt norm position feed_forward.activation --design factorial

The arms are made from the difference of the two configs. A gated layer has half as many parameters again;
`--match parameters` narrows it.

Found with `--seeds 8 --learning-rates 3e-3 1e-2 3e-2` (2 layers, d 64, 300 steps; jax 0.10.2, one core, 2026-11-29),
nats per token: all of Llama's choices, and all but each, against all:

    all                        2.1478 ± 0.0252
    − mixer.num_kv_heads       2.1385 ± 0.0177  -0.0093 [-0.0359, +0.0174]  unresolved
    − mixer.bias               2.1487 ± 0.0266  +0.0010 [-0.0188, +0.0208]  unresolved
    − feed_forward.activation  2.2099 ± 0.0171  +0.0621 [+0.0039, +0.1204]  worse
    − feed_forward.bias        2.1473 ± 0.0217  -0.0005 [-0.0211, +0.0200]  unresolved
    − norm                     2.1692 ± 0.0291  +0.0215 [-0.0164, +0.0820]  unresolved
    − position                 2.3200 ± 0.0067  +0.1722 [+0.1268, +0.2176]  worse
    − head.tied                2.1315 ± 0.0093  -0.0163 [-0.0598, +0.0272]  unresolved
    − optimizer.rule.beta2     2.1517 ± 0.0269  +0.0039 [-0.0209, +0.0287]  unresolved
    base                       2.3650 ± 0.0064  +0.2172 [+0.1798, +0.2545]  worse

and the factorial of three of them:

    main effect: norm                                +0.0022 [-0.0043, +0.0087]  equivalent
    main effect: position                            -0.2203 [-0.2381, -0.2025]  better
    main effect: feed_forward.activation             -0.0550 [-0.0695, -0.0405]  better
    interaction: norm × position                     -0.0005 [-0.0172, +0.0161]  unresolved
    interaction: norm × feed_forward.activation      -0.0050 [-0.0239, +0.0139]  unresolved
    interaction: position × feed_forward.activation  -0.0406 [-0.0625, -0.0188]  better

Of eight choices rotary positions make most of the difference, and the gate nearly all of the rest, which has half as
many parameters again. It is worth .04 more with rotary positions (2.162 to 2.092) than with learned ones (2.365 to
2.330), which one factor at a time would not have shown. The best rate was the lowest tried in all arms but one.
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
