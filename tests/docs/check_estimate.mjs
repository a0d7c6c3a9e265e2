// Compares the planner of the page "Is it worth it for me?" with the program: the same times, energies and
// bounds for several models, GPUs and pipelines. Exits with 77 (skipped) if the planner is not built.
//
//   node check_estimate.mjs PERSEUS SOURCES PLANNER.wasm
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import vm from "node:vm";

const [program, sources, path] = process.argv.slice(2);
if (!existsSync(path)) {
  console.log(`skipped: ${path} is not built (scripts/test builds it)`);
  process.exit(77);
}
vm.runInThisContext(readFileSync(join(sources, "docs/theme/planner_module.js"), "utf8"));
const planner = await loadPerseusPlanner(readFileSync(path));

// model, GPU, stages, microbatches, microbatch size, tensor parallel
const jobs = [
  ["llama3-8b", "a100-sxm", 4, 16, 1, 1],
  ["gpt3-xl", "a100-pcie", 4, 12, 8, 1],
  ["gpt3-175b", "a100-sxm", 8, 24, 1, 8],
  ["bloom-3b", "a40", 8, 8, 4, 1],
  ["t5-3b", "h100-sxm", 2, 3, 2, 2],
  ["wide-resnet101_8", "a40", 6, 6, 16, 1],
];
const scratch = mkdtempSync(join(tmpdir(), "estimate-"));
try {
  const profile = join(scratch, "profile.csv");
  const run = (...args) => execFileSync(program, args.map(String), { encoding: "utf8", stdio: "pipe" });
  for (const [model, gpu, stages, microbatches, microbatchSize, tensorParallel] of jobs) {
    const { blocking_power_w } = planner.choices().gpus.find(({ name }) => name === gpu);
    run("synth", "--model", model, "--gpu", gpu, "--stages", stages, "--microbatch-size", microbatchSize,
      "--tensor-parallel", tensorParallel, "-o", profile);
    const printed = JSON.parse(run("plan", profile, "--schedule", "1f1b", "--microbatches", microbatches,
      "--blocking-power", blocking_power_w, "--gpus-per-stage", tensorParallel, "--per-instruction",
      "--no-frontier", "--json"));
    const found = planner.estimate({ model, gpu, stages, microbatches, microbatchSize, tensorParallel });
    const name = [model, gpu, stages, microbatches].join(" ");
    assert.equal(found.time_s, printed.plans[0].time_s, name);
    assert.equal(found.baseline_time_s, printed.baseline.time_s, name);
    // Energies are sums of doubles. Compilers may add them in another order.
    const equal = (one, other) => assert.ok(Math.abs(one / other - 1) < 1e-12, `${name}: ${one} ${other}`);
    equal(found.energy_j, printed.plans[0].energy_j);
    equal(found.baseline_energy_j, printed.baseline.energy_j);
    equal(found.lower_bound_j, printed.plans[0].lower_bound_j);
  }
  const refused = planner.estimate({ model: "none", gpu: "a40", stages: 4, microbatches: 4, microbatchSize: 1, tensorParallel: 1 });
  assert.match(refused.error, /"none" is unknown/);
  console.log(`${jobs.length} jobs are planned alike`);
} finally {
  rmSync(scratch, { recursive: true });
}
