"""Writes the table "What works" of docs/frameworks.md: framework, version, what works, and its test.

    tests/frameworks/table.py          prints the table
    tests/frameworks/table.py --check  compares it with the document, and each row with the tests

The versions are those of scripts/frameworks.txt. Each row names the test that runs it.
"""

import ast
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DOCUMENT = ROOT / "docs" / "frameworks.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"

# Package, what works, and the test: file.class.method.
TORCH, STEPS, SAFE = "torch", "torch_behavior_test.StepsTest.", "torch_behavior_test.NeverInTheWayTest."
DEEPSPEED, ENGINE = "deepspeed", "deepspeed_robust_test.RobustTest."
MEGATRON, SCHEDULES = "megatron-core", "megatron_robust_test.RobustTest."
CLOSED_LOOP = "frameworks_closed_loop_test.FrameworksClosedLoopTest."
ROWS = [
    (TORCH, "GPipe, 1F1B, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV, "
     "and a schedule from a CSV: order, plan, results; 2 ranks", "torch_test.SchedulesTest.test_two_ranks"),
    (TORCH, "the same with 4 ranks", "torch_test.SchedulesTest.test_four_ranks"),
    (TORCH, "tune and verify, 4 ranks, 1F1B", "torch_closed_loop_test.TorchClosedLoopTest.test_1f1b"),
    (TORCH, "attached by the import hook", "hook_test.HookTest.test_a_training_program_is_recorded_and_computes_the_same"),
    (TORCH, "evaluation between steps", STEPS + "test_evaluation_between_steps_is_not_recorded"),
    (TORCH, "several schedules of the same stages", STEPS + "test_batch_ramp_up_with_a_second_schedule_of_the_same_stages"),
    (TORCH, "a pipeline that is made again", STEPS + "test_a_pipeline_that_is_made_again_takes_over"),
    (TORCH, "activation checkpointing, torch.compile of a stage", STEPS + "test_activation_checkpointing_and_compiled_stages"),
    (TORCH, "custom functions, as of torchtitan's GraphPP", STEPS + "test_custom_functions_are_recorded"),
    (TORCH, "refused: overlapped forward and backward", STEPS + "test_overlapped_forward_and_backward_are_refused"),
    (TORCH, "refused: a second pipeline on a rank", STEPS + "test_another_pipeline_on_the_same_rank_is_refused_once"),
    (TORCH, "ranks from the mesh of DTensor parameters", "torch_behavior_test.RanksTest.test_the_mesh_of_a_dtensor_parameter"),
    (TORCH, "exceptions of the model", SAFE + "test_exceptions_of_the_model_pass_unchanged"),
    (DEEPSPEED, "1F1B, DualPipeV: order, plan, results, evaluation between steps, changing number of "
     "microbatches; 2 ranks", "deepspeed_test.EngineTest.test_two_ranks"),
    (DEEPSPEED, "the same with 4 ranks", "deepspeed_test.EngineTest.test_four_ranks"),
    (DEEPSPEED, "tune and verify, 4 ranks, 1F1B", CLOSED_LOOP + "test_deepspeed"),
    (DEEPSPEED, "split backward (dgrad, wgrad)", ENGINE + "test_dgrad_and_wgrad"),
    (DEEPSPEED, "attached by the import hook", ENGINE + "test_without_a_change_of_the_program"),
    (DEEPSPEED, "exceptions", ENGINE + "test_an_exception_passes_and_the_step_is_abandoned"),
    (MEGATRON, "1F1B, interleaved: order, plan, results, evaluation between steps, changing number of "
     "microbatches; 2 ranks", "megatron_test.SchedulesTest.test_two_ranks"),
    (MEGATRON, "the same with 4 ranks", "megatron_test.SchedulesTest.test_four_ranks"),
    (MEGATRON, "tune and verify, 4 ranks, 1F1B", CLOSED_LOOP + "test_megatron"),
    (MEGATRON, "no pipeline; exceptions", SCHEDULES + "test_an_exception_passes_and_the_step_is_abandoned"),
    (MEGATRON, "attached by the import hook", SCHEDULES + "test_without_a_change_of_the_program"),
    (MEGATRON, "whole steps only: overlapped forward and backward",
     SCHEDULES + "test_a_forward_that_overlaps_a_backward_is_a_warning"),
]  # fmt: skip


def versions():
    pins = (ROOT / "scripts" / "frameworks.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==([\w.+]+)", pins, re.MULTILINE))


def table():
    pinned = versions()
    lines = ["| framework | version | what works | test |", "|---|---|---|---|"]
    for package, feature, test in ROWS:
        lines.append(f"| {package} | {pinned[package]} | {feature} | `{test.split('.')[2]}` |")
    return "\n".join(lines) + "\n"


def missing_tests():
    for _, _, test in ROWS:
        file, cls, method = test.split(".")
        tree = ast.parse((HERE / f"{file}.py").read_text())
        methods = [
            item.name
            for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls
            for item in node.body if isinstance(item, ast.FunctionDef)
        ]  # fmt: skip
        if method not in methods:
            yield test


def main():
    if "--check" not in sys.argv:
        print(table(), end="")
        return 0
    problems = [f"{test} does not exist" for test in missing_tests()]
    text = DOCUMENT.read_text()
    if text[text.index(BEGIN) + len(BEGIN) : text.index(END)] != table():
        problems.append(f"{DOCUMENT.name}: the table differs from that of {__file__}")
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
