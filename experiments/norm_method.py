"""Which norm? LayerNorm with fewer and fewer parts, RMSNorm, and norms without statistics.

Expected: LayerNorm without bias, RMSNorm (Narang et al. 2021: 2.167 against 2.182 of T5's loss) and DyT (Zhu et al.
2025) are as good as LayerNorm; without any norm training is slower and works at fewer learning rates, which the
column `sensitivity` shows. DyT comes with the embeddings of its paper, which begin the stream at a standard deviation
of 1; the plain swap, and LayerNorm with such embeddings, stand beside it.

    python -m experiments.norm_method                  two cores: 4 minutes
    python -m experiments.norm_method --seeds 12       9 minutes
    python -m experiments.norm_method full             a GPU

Found with `--seeds 12` (2 layers, d 64, 300 steps; jax 0.10.2, two cores with other work, 2026-11-24), nats per token,
differences with intervals that hold together, and sensitivity to the learning rate:

    layernorm                     2.3335 ± 0.0086                                            0.162
    no bias                       2.3380 ± 0.0086  +0.0045 [-0.0023, +0.0113]  unresolved  0.157
    no parameters                 2.3555 ± 0.0091  +0.0219 [+0.0133, +0.0306]  worse       0.175
    rmsnorm                       2.3337 ± 0.0093  +0.0002 [-0.0074, +0.0078]  equivalent  0.162
    scalenorm                     2.3487 ± 0.0114  +0.0151 [+0.0080, +0.0223]  worse       0.172
    dyt                           2.3066 ± 0.0111  -0.0269 [-0.0383, -0.0156]  better      0.149
    dyt, small embeddings         3.2509 ± 0.0115  +0.9174 [+0.8928, +0.9419]  worse       0.003
    layernorm, embeddings of dyt  2.3136 ± 0.0106  -0.0199 [-0.0359, -0.0040]  better      0.128
    none                          2.5170 ± 0.0171  +0.1835 [+0.1542, +0.2128]  worse       0.292
    layernorm, other seeds        2.3258 ± 0.0093  -0.0077 [-0.0303, +0.0149]  unresolved  0.158

As published: RMSNorm is equivalent to LayerNorm, and DyT as good, even better; but LayerNorm with the embeddings of
that recipe is nearly as far ahead, so most of it is the embeddings'. As a plain swap DyT learns nothing of the
context: its logits begin near 0, which the report says before training. The best rates of all others lie inside
the grid.
"""

from typing import Any

from experiments import cli
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.core.parameters import Normal
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.norms.scale_norm import ScaleNorm
from transformer.norms.without_statistics import DyT


def arms(d_model: int) -> dict[str, dict[str, Any]]:
    """DyT as its paper trains it, as a plain swap, and LayerNorm with the embeddings of that recipe."""
    small = {"model.embedding.scaled": False, "model.embedding.initializer": Normal(0.02)}
    return {
        "layernorm": {"model.norm": LayerNorm()},
        "no bias": {"model.norm": LayerNorm(bias=False)},
        "no parameters": {"model.norm": LayerNorm(bias=False, scale=False)},
        "rmsnorm": {"model.norm": RMSNorm()},
        "scalenorm": {"model.norm": ScaleNorm()},
        "dyt": {"model.norm": DyT()},
        "dyt, small embeddings": {"model.norm": DyT(), **small},
        "layernorm, embeddings of dyt": {"model.norm": LayerNorm(), **DyT().recipe(d_model)},
        "none": {"model.norm": None},
    }


def main() -> None:
    command = cli.parse(StudyCommand, budgets("norm_method"), description=__doc__)
    run_parsed("norm method", arms(command.model.d_model), command)


if __name__ == "__main__":
    cli.main(main)
