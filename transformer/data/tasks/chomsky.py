"""Tasks from the levels of the Chomsky hierarchy (Delétang et al. 2022, table 1 and appendix A).

Of the fifteen, those that are other tasks with a small alphabet are not here:

- regular: `EvenPairs`, `ModularArithmeticSimple`, `CycleNavigation`; parity check is `WordProblem("parity")`;
- deterministic context-free: `StackManipulation`, `ModularArithmeticBrackets`, `SolveEquation`; reverse string is
  `Reverse(alphabet=2)`;
- context-sensitive: `MissingDuplicate`, `BinaryAddition`, `BinaryMultiplication`, `ComputeSqrt`; duplicate string is
  `DuplicateString(alphabet=2)`, odds first `OddsFirst(alphabet=2)`, bucket sort `Sort(alphabet=5)`.

The paper trains on sizes up to 40 and tests on sizes up to 500.
"""

import abc
import math
import operator
import random
from dataclasses import dataclass
from typing import ClassVar

from transformer.data.tasks.task import RowTask, answered


@dataclass(frozen=True)
class _InputOutput(RowTask):
    """`x … x = y … y </s>`, or without `</s>` where the output is one symbol."""

    items: int = 40
    """Largest number of symbols of the input; all numbers for which the task is defined are equally probable."""

    smallest: ClassVar[int] = 1
    """Smallest number of symbols for which it is defined."""
    several: ClassVar[bool] = False
    """Whether the output may have several symbols."""

    def __post_init__(self):
        self.at_least(items=self.smallest)

    @property
    def length(self):
        return self.items + 1 + self._longest + self.several

    @property
    def _longest(self) -> int:
        """Number of symbols of the longest output."""
        return self.items if self.several else 1

    def row(self, draw):
        question, answer = self._example(draw, draw.randint(self.smallest, self.items))
        return answered([*question, "="], [*answer, "</s>"] if self.several else answer)

    @abc.abstractmethod
    def _example(self, draw: random.Random, size: int) -> tuple[list[str], list[str]]:
        """The symbols of an input of this size, and of its output."""


@dataclass(frozen=True)
class EvenPairs(_InputOutput):
    """`0 1 0 0 1 = 1`: whether the number of pairs 01 and 10 of neighbours is odd."""

    name = "even_pairs"

    @property
    def symbols(self):
        return ("0", "1", "=")

    def _example(self, draw, size):
        bits = draw.choices("01", k=size)
        return bits, [str(int(bits[0] != bits[-1]))]


@dataclass(frozen=True)
class CycleNavigation(_InputOutput):
    """`> . < < > < < = 3`: the place on a cycle after steps forward and back, and steps that stay."""

    name = "cycle_navigation"
    places: int = 5
    """Number of places of the cycle, at least 2."""

    def __post_init__(self):
        super().__post_init__()
        self.at_least(places=2)

    @property
    def symbols(self):
        return (*map(str, range(self.places)), "<", ".", ">", "=")

    def _example(self, draw, size):
        steps = draw.choices("<.>", k=size)
        return steps, [str((steps.count(">") - steps.count("<")) % self.places)]


@dataclass(frozen=True)
class StackManipulation(_InputOutput):
    """`0 1 1 push_0 pop pop = 1 0 </s>`: a stack from its bottom, what is done to it, and the stack from its top.

    To pop from an empty stack does nothing.
    """

    name = "stack_manipulation"
    several = True

    @property
    def symbols(self):
        return ("0", "1", "pop", "push_0", "push_1", "=")

    def _example(self, draw, size):
        stack = draw.choices("01", k=draw.randint(1, max(1, size - 1)))
        actions = draw.choices(("pop", "push_0", "push_1"), k=size - len(stack))
        question = stack + actions
        for action in actions:
            stack = stack[:-1] if action == "pop" else [*stack, action[-1]]
        return question, stack[::-1]


@dataclass(frozen=True)
class _Modular(_InputOutput):
    """The value of an expression of numbers modulo `modulus`."""

    modulus: int = 5
    """At least 2."""

    def __post_init__(self):
        super().__post_init__()
        self.at_least(modulus=2)

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*map(str, range(self.modulus)), "+", "-", "*", "(", ")", "=")


@dataclass(frozen=True)
class ModularArithmeticSimple(_Modular):
    """`1 + 2 * 3 - 4 = 3`: without brackets. The number of symbols is odd, so an even one is reduced by one."""

    name = "modular_arithmetic_simple"

    @property
    def symbols(self):
        return (*map(str, range(self.modulus)), "+", "-", "*", "=")

    def _example(self, draw, size):
        numbers = [draw.randrange(self.modulus) for _ in range((size + 1) // 2)]
        signs = draw.choices("+-*", k=len(numbers) - 1)
        terms = numbers[:1]
        for sign, number in zip(signs, numbers[1:], strict=True):
            if sign == "*":
                terms[-1] *= number
            else:
                terms.append(number if sign == "+" else -number)
        question = [str(numbers[0])]
        for sign, number in zip(signs, numbers[1:], strict=True):
            question += [sign, str(number)]
        return question, [str(sum(terms) % self.modulus)]


@dataclass(frozen=True)
class ModularArithmeticBrackets(_Modular):
    """`( ( 3 * 2 ) - ( - 4 ) ) = 0`: with brackets around every operation (modular arithmetic, in the paper)."""

    name = "modular_arithmetic_brackets"

    def _example(self, draw, size):
        question, value = bracketed(draw, size, self.modulus, "+-*")
        return question, [str(value)]


@dataclass(frozen=True)
class SolveEquation(_Modular):
    """`( ( 3 + x ) - ( - 4 ) ) == 1 = 4`: one number of an expression of sums and differences, given its value.

    Every number is as likely to be the unknown; in the authors' code those after many signs are likelier.
    """

    name = "solve_equation"
    smallest = 3

    @property
    def symbols(self):
        return (*map(str, range(self.modulus)), "+", "-", "(", ")", "x", "==", "=")

    def _example(self, draw, size):
        question, value = bracketed(draw, size - 2, self.modulus, "+-")
        place = draw.choice([i for i, symbol in enumerate(question) if symbol.isdigit()])
        answer, question[place] = question[place], "x"
        return [*question, "==", str(value)], [answer]


_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def bracketed(draw: random.Random, size: int, modulus: int, signs: str) -> tuple[list[str], int]:
    """A random expression of `size` symbols and its value; the two sides of an operation have any sizes that fit."""
    if size < 5:
        number = draw.randrange(modulus)
        negative = size % 2 == 0
        inner = ["-", str(number)] if negative else [str(number)]
        return inner if size < 3 else ["(", *inner, ")"], (-number if negative else number) % modulus
    left_size = draw.randint(1, size - 4)
    left, a = bracketed(draw, left_size, modulus, signs)
    right, b = bracketed(draw, size - 3 - left_size, modulus, signs)
    sign = draw.choice(signs)
    return ["(", *left, sign, *right, ")"], _OPERATIONS[sign](a, b) % modulus


@dataclass(frozen=True)
class MissingDuplicate(_InputOutput):
    """`0 1 1 0 0 _ 1 0 = 1`: the missing symbol of a string that is written twice.

    The number of symbols is even, so an odd one is reduced by one.
    """

    name = "missing_duplicate"
    smallest = 2

    @property
    def symbols(self):
        return ("0", "1", "_", "=")

    def _example(self, draw, size):
        question = 2 * draw.choices("01", k=size // 2)
        place = draw.randrange(len(question))
        answer, question[place] = question[place], "_"
        return question, [answer]


@dataclass(frozen=True)
class _BinaryOperation(_InputOutput):
    """Two positive numbers and a result, each from its least significant bit; only the numbers may end with zeros."""

    smallest = 3
    several = True
    sign: ClassVar[str]

    @property
    def symbols(self):
        return ("0", "1", self.sign, "=")

    def _example(self, draw, size):
        left_size = draw.randint(1, size - 2)
        sizes = (left_size, size - 1 - left_size)
        a, b = (draw.randint(1, 2**bits - 1) for bits in sizes)
        left, right = (_bits(number, bits)[::-1] for number, bits in zip((a, b), sizes, strict=True))
        return [*left, self.sign, *right], _bits(self._result(a, b))[::-1]

    @abc.abstractmethod
    def _result(self, a: int, b: int) -> int: ...


@dataclass(frozen=True)
class BinaryAddition(_BinaryOperation):
    """`0 1 0 + 1 1 = 1 0 1 </s>`: 2 + 3 = 5, each number from its least significant bit."""

    name = "binary_addition"
    sign = "+"

    def _result(self, a, b):
        return a + b


@dataclass(frozen=True)
class BinaryMultiplication(_BinaryOperation):
    """`0 1 0 * 1 1 = 0 1 1 </s>`: 2 · 3 = 6, each number from its least significant bit."""

    name = "binary_multiplication"
    sign = "*"

    def _result(self, a, b):
        return a * b


@dataclass(frozen=True)
class ComputeSqrt(_InputOutput):
    """`1 0 0 1 0 1 = 1 1 0 </s>`: √37, rounded down, is 6; the root of n bits has ⌈n/2⌉, from the most significant."""

    name = "compute_sqrt"
    several = True

    @property
    def symbols(self):
        return ("0", "1", "=")

    @property
    def _longest(self):
        return (self.items + 1) // 2

    def _example(self, draw, size):
        number = draw.randint(1, 2**size - 1)
        return _bits(number, size), _bits(math.isqrt(number), (size + 1) // 2)


def _bits(number: int, size: int = 1) -> list[str]:
    """At least `size` bits, from the most significant."""
    return list(f"{number:0{size}b}")
