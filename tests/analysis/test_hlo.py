"""The work of programs for other devices: lines as the compilers of TPUs and GPUs write them."""

import pytest

from transformer.analysis.hlo import Collective, work_of

LOOP = """
%body (p: (s32[], f32[8,64])) -> (s32[], f32[8,64]) {
  %one = s32[]{:T(128)} constant(STEP)
  %p = (s32[]{:T(128)}, f32[8,64]{1,0:T(8,128)}) parameter(0)
  %count = s32[]{:T(128)} get-tuple-element(%p), index=0
  %copied = s32[]{:T(128)S(6)} copy(%count), backend_config={}
  %next = s32[]{:T(128)} add(%copied, %one)
  %x = f32[8,64]{1,0:T(8,128)} get-tuple-element(%p), index=1
  %w = f32[32,64]{1,0:T(8,128)} constant(0)
  %y = f32[8,32]{1,0:T(8,128)} convolution(%x, %w), dim_labels=bf_oi->bf, metadata={op_name="a/b"}, \
backend_config={"estimated_cycles":"100"}
  ROOT %out = (s32[]{:T(128)}, f32[8,64]{1,0:T(8,128)}) tuple(%next, %x)
}

%condition (q: (s32[], f32[8,64])) -> pred[] {
  %limit = s32[]{:T(128)} constant(12)
  %q = (s32[]{:T(128)}, f32[8,64]{1,0:T(8,128)}) parameter(0)
  %at = s32[]{:T(128)} get-tuple-element(%q), index=0
  ROOT %less = pred[]{:T(512)} compare(%at, %limit), direction=LT
}

ENTRY %main (z: (s32[], f32[8,64])) -> (s32[], f32[8,64]) {
  %z = (s32[]{:T(128)}, f32[8,64]{1,0:T(8,128)}) parameter(0)
  ROOT %loop = (s32[]{:T(128)}, f32[8,64]{1,0:T(8,128)}) while(%z), condition=%condition, body=%body
}
"""


@pytest.mark.parametrize(("step", "turns"), [(1, 12), (2, 6)])
def test_a_loop_runs_as_often_as_its_condition_says(step, turns):
    """Loops that exchange pieces while they multiply count by two."""
    work = work_of(LOOP.replace("STEP", str(step)))
    assert work.products == {"a/b": turns * 2 * 8 * 64 * 32}
    assert work.cycles == turns * 100


def test_a_loop_without_an_end_is_refused():
    with pytest.raises(ValueError, match="no number of turns in the loop body"):
        work_of(LOOP.replace("direction=LT", "direction=NE"))


def entry(*lines):
    return "ENTRY %main (a: f32[2]) -> f32[2] {\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"


@pytest.mark.parametrize(
    ("shapes", "how", "flops"),
    [
        # 12 heads, each a product of (1024, 64) and (64, 1024): the window meets one head at a time.
        (
            ("bf16[12,1024,64]", "bf16[12,1024,64]", "f32[12,1024,1024]"),
            "window={size=12 stride=11 lhs_dilate=12}, dim_labels=0bf_0oi->0bf",
            2 * 12 * 1024 * 1024 * 64,
        ),
        (
            ("bf16[1024,64,1]", "bf16[12,64,64]", "f32[1024,12,64]"),
            "window={size=12 pad=11_11 rhs_reversal=1}, dim_labels=bf0_0oi->b0f",
            2 * 12 * 1024 * 64 * 64,
        ),
        (("bf16[8,256]", "bf16[256,512]", "f32[8,512]"), "dim_labels=bf_io->bf", 2 * 8 * 256 * 512),
        # A short convolution of width 4 with the past.
        (
            ("f32[2,10,6]", "f32[4,6,5]", "f32[2,10,5]"),
            "window={size=4 pad=3_0}, dim_labels=b0f_0io->b0f",
            2 * 2 * 5 * 6 * (10 + 9 + 8 + 7),
        ),
    ],
    ids=["heads", "reversed", "product", "short"],
)
def test_products_are_counted_in_convolutions(shapes, how, flops):
    left, right, result = shapes
    line = f"%c = {result}{{1,0}} convolution(%a, %b), {how}"
    text = entry(f"%a = {left}{{1,0}} parameter(0)", f"%b = {right}{{1,0}} parameter(1)", line)
    assert work_of(text).flops == flops


def test_products_are_counted_in_calls_of_cublas():
    """Four products of (32, 16) and (16, 8), and the space that the library asks for."""
    line = (
        "%c = (bf16[4,32,8]{2,1,0}, s8[4194304]{0}) custom-call(%a, %b), "
        'custom_call_target="__cublas$lt$matmul", metadata={op_name="a/b"}, backend_config={"gemm_backend_config":'
        '{"dot_dimension_numbers":{"lhs_contracting_dimensions":["2"],"rhs_contracting_dimensions":["1"],'
        '"lhs_batch_dimensions":["0"],"rhs_batch_dimensions":["0"]}}}'
    )
    text = entry("%a = bf16[4,32,16]{2,1,0} parameter(0)", "%b = bf16[4,16,8]{2,1,0} parameter(1)", line)
    assert work_of(text).products == {"a/b": 4 * 2 * 32 * 16 * 8}


def test_what_passes_between_devices_is_told_apart():
    """Groups as lists, as sizes, as axes of a mesh; the start of one that overlaps also has its operand."""
    text = entry(
        "%r = f32[10]{0} all-reduce(%a), replica_groups={{0,1},{2,3}}, to_apply=%add",
        "%g = bf16[8,4]{1,0} all-gather(%a), replica_groups=[2,4]<=[8], dimensions={0}",
        "%s = f32[6]{0} reduce-scatter(%a), replica_groups=mesh['x'=2,'y'=4] {'y'}, to_apply=%add",
        "%t = (f32[2]{0}, f32[16]{0}) all-gather-start(%a), replica_groups=[1,8]<=[8], dimensions={0}",
        "%d = f32[16]{0} all-gather-done(%t)",
    )
    assert work_of(text).collective_bytes == {
        Collective("all-reduce", 2): 40,
        Collective("all-gather", 4): 64,
        Collective("reduce-scatter", 4): 24,
        Collective("all-gather", 8): 64,
    }


CHAIN = """
%begun (p: bf16[2,4]) -> bf16[8,4] {
  %p = bf16[2,4]{1,0} parameter(0)
  ROOT %ag.1 = bf16[8,4]{1,0} all-gather(%p), channel_id=4, replica_groups=[2,4]<=[8], dimensions={0}, CHAIN
}

%ended (q: bf16[2,4]) -> bf16[8,4] {
  %q = bf16[2,4]{1,0} parameter(0)
  %w = bf16[16,4]{1,0} constant(0)
  %y = bf16[2,16]{1,0} convolution(%q, %w), dim_labels=bf_oi->bf
  ROOT %ag.2 = bf16[8,4]{1,0} all-gather(%q), channel_id=4, replica_groups=[2,4]<=[8], dimensions={0}, CHAIN
}

ENTRY %main (a: bf16[2,4]) -> bf16[8,4] {
  %a = bf16[2,4]{1,0} parameter(0)
  %first = bf16[8,4]{1,0} fusion(%a), kind=kCustom, calls=%begun
  ROOT %last = bf16[8,4]{1,0} fusion(%a), kind=kCustom, calls=%ended
}
"""


@pytest.mark.parametrize(("attribute", "times"), [('frontend_attributes={chain_id="0"}', 1), ("metadata={}", 2)])
def test_what_passes_while_products_are_made_passes_once(attribute, times):
    """A TPU's program has it again in each fusion that it overlaps with, in a chain; the products are all counted."""
    work = work_of(CHAIN.replace("CHAIN", attribute))
    assert work.collective_bytes == {Collective("all-gather", 4): times * 8 * 4 * 2}
    assert work.flops == 2 * 2 * 16 * 4
