"""Which norm? LayerNorm with fewer and fewer parts, RMSNorm, and norms without statistics.

Expected: LayerNorm without bias, RMSNorm (Narang et al. 2021: 2.167 against 2.182 of T5's loss) and DyT (Zhu et al.
2025) are as good as LayerNorm; without any norm training is slower and works at fewer learning rates, which the
column `sensitivity` shows. DyT comes with the embeddings of its paper, which begin the stream at a standard deviation
of 1; the plain swap, and LayerNorm with such embeddings, stand beside it.

    python -m experiments.norm_method                  two cores: 6 minutes
    python -m experiments.norm_method --seeds 8        8 minutes
    python -m experiments.norm_method full             a GPU

Found with `--seeds 8` (2 layers, d 64, 300 steps; jax 0.10.2, two cores of an AMD EPYC, 2026-11-29), nats per token,
differences with intervals that hold together, and sensitivity to the learning rate:

    layernorm                     2.3722 ± 0.0084                                            0.150
    no bias                       2.3767 ± 0.0066  +0.0044 [-0.0041, +0.0129]  unresolved  0.142
    no parameters                 2.3919 ± 0.0092  +0.0196 [+0.0114, +0.0279]  worse       0.157
    rmsnorm                       2.3913 ± 0.0070  +0.0191 [-0.0766, +0.1470]  unresolved  0.117
    scalenorm                     2.3870 ± 0.0058  +0.0147 [+0.0062, +0.0232]  worse       0.138
    dyt                           2.3510 ± 0.0068  -0.0212 [-0.0393, -0.0032]  better      0.090
    dyt, small embeddings         3.2567 ± 0.0158  +0.8844 [+0.8507, +0.9182]  worse       0.001
    layernorm, embeddings of dyt  2.3487 ± 0.0086  -0.0236 [-0.0403, -0.0068]  better      0.117
    none                          2.5674 ± 0.0332  +0.1952 [+0.1336, +0.2567]  worse       0.250

RMSNorm differs by +.0029 ± .0017 (standard error) where both are trained at .003, but half of its seeds choose .01, at
which some runs end badly, so that nothing is told; `experiments/effects/rms_norm.py` asks it with more seeds. DyT is
better, but LayerNorm with the embeddings of its recipe is as far ahead, so it is the embeddings'. As a plain swap DyT
learns nothing of the context: its logits begin near 0, which the report says before training. The best rates of all
others lie inside the grid.
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
