"""Does the best learning rate stay the same when the model gets wider? The standard parametrization against µP.

Expected (Yang et al. 2022, Tensor Programs V, figure 1): under µP all widths have the same best learning rate, and
wider is better at each; under the standard parametrization the best learning rate falls with the width. In
both, matrices are initialized with variance 1/fan-in, and scores are as usual at the smallest width, so that there the
two are the same. `learning_rates.png` shows loss against learning rate.

    python -m experiments.mup                          two cores: minutes
    python -m experiments.mup full                     a GPU

Found with `--steps 200 --seeds 8` (2 layers; jax 0.10.2, one core, 27 min with other work on it, 2026-11-29), nats per
token and the best of six learning rates, and the same with `--model.head.tied False`:

    width   standard                    µP
       32   2.6022 ± 0.0205   0.008     2.6022 ± 0.0205   0.008
       64   2.5078 ± 0.0140   0.004     2.6038 ± 0.0195   0.008
      128   2.4232 ± 0.0095   0.002     2.5991 ± 0.0418   0.008
       32   2.5528 ± 0.0165   0.008     2.5528 ± 0.0165   0.008
       64   2.4751 ± 0.0163   0.004     2.5245 ± 0.0226   0.008
      128   2.4095 ± 0.0134   0.002     2.5006 ± 0.0142   0.008

As expected the best rate is that of the smallest width under µP, and is halved with every doubling of the width under
the standard parametrization. Wider is better under µP where the head is not tied, and not where it is; at rates of
their own the widths of the standard parametrization gain more, so after 200 steps what µP saves is the search. With
scores of q·k/K, which are weaker at the smallest width too, the last of these was 2.5436 ± 0.0144.
"""

from typing import Any

from experiments import cli
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.core.parameters import FanIn
from transformer.runs.mup import mup

BUDGETS = budgets("mup", seeds=3, learning_rates=(1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2), **{"model.d_model": 128})
PARTS = (4, 2, 1)


def arms(command: StudyCommand) -> dict[str, dict[str, Any]]:
    """The command's width, a half and a quarter of it, in both parametrizations; µP scales from the smallest."""
    made: dict[str, dict[str, Any]] = {}
    narrow = command.model.replace(d_model=command.model.d_model // max(PARTS))
    head_dim = 1 if narrow.attention is None else narrow.attention.sizes(narrow).head_dim
    for width in (command.model.d_model // part for part in PARTS):
        changes = {"model.d_model": width, "model.initializer": FanIn()}
        made[f"standard {width}"] = changes
        made[f"µP {width}"] = changes | mup(command.replace(changes), narrow.d_model, head_dim)
    return made


def main() -> None:
    command = cli.parse(StudyCommand, BUDGETS, description=__doc__)
    run_parsed("µP", arms(command), command)


if __name__ == "__main__":
    cli.main(main)
