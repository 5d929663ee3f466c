"""Which positional scheme? At the length of training, and on texts twice and four times as long.

Expected (Press et al. 2021): on longer texts sinusoids collapse first, then rotary positions, then T5's
bias; ALiBi stays as good. At the length of training relative schemes are ahead early (RoPE above all). The
column `loss at 2x length` is the loss of tokens past the length of training.

    python -m experiments.position                     two cores: 6 minutes
    python -m experiments.position full                a GPU

Found with the first command (2 layers, d 64, 300 steps of 32 characters, 4 estimation seeds of 6,
learning rate chosen from 1e-3, 3e-3, 1e-2 on the other 2; jax 0.10.2, two cores with other work,
2026-11-21), nats per token, and at tokens past the length of training in 2 and 4 times as long a text:

    learned                    2.2943 ± 0.0254
    none                       2.2721 ± 0.0152   -0.0222 ± 0.0151  unresolved  2.3832  2.3816
    sinusoidal                 3.2351 ± 0.0285   +0.9408 ± 0.0430  worse       3.2591  3.2617
    sinusoidal, embeddings √d  2.4150 ± 0.2048   +0.1206 ± 0.1882  unresolved  2.6448  2.6496
    rope                       2.0801 ± 0.0338   -0.2142 ± 0.0190  better      2.2856  2.4417
    alibi                      2.1754 ± 0.0342   -0.1189 ± 0.0303  better      2.2531  2.2421
    t5 bias                    2.1573 ± 0.1039   -0.1370 ± 0.0974  unresolved  2.3294  2.3774

Signs reproduced: RoPE is first at the length of training and loses most past it, then T5's bias; ALiBi
stays as good. Sinusoids of unit size drown embeddings of standard deviation 0.02. No run diverged.
"""

from experiments import cli
from experiments.study_command import budgets, run_study
from transformer.core.parameters import Normal
from transformer.positions.absolute import Learned, Sinusoidal
from transformer.positions.relative import ALiBi, T5Bias
from transformer.positions.rotary import RoPE
from transformer.study.probes import LongerText

SMALL = {"model.embedding.scaled": False, "model.embedding.initializer": Normal(0.02)}
"""In place of the embeddings of the paper's recipe."""
ARMS = {
    "learned": {"model.position": Learned()},
    "none": {"model.position": None},
    "sinusoidal": {"model.position": Sinusoidal()},
    "sinusoidal, small embeddings": {"model.position": Sinusoidal(), **SMALL},
    "rope": {"model.position": RoPE()},
    "alibi": {"model.position": ALiBi()},
    "t5 bias": {"model.position": T5Bias()},
}


def main() -> None:
    run_study("position", ARMS, budgets("position"), __doc__ or "", (LongerText(2), LongerText(4)))


if __name__ == "__main__":
    cli.main(main)
