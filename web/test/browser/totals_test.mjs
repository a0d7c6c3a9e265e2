// Tests that the data in the page equals the plan files, and that parts add up to totals.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { jobNames, jobOf } from "./jobs.mjs";
import { assertNear, sum } from "./quantities.mjs";
import { instructionsOf } from "./timeline.mjs";

const nanoseconds = (seconds) => Math.round(seconds * 1e9);
const iterationsOf = ({ data }) => [
  ["maximum frequency", data.baseline],
  ...data.plans.map((plan) => [plan.target, plan]),
];

for (const name of jobNames) {
  describe(`totals of ${name}`, () => {
    it("energies of instructions and waiting add up to the energy of the iteration", async () => {
      const job = await jobOf(name);
      for (const [target, iteration] of iterationsOf(job)) {
        const lanes = instructionsOf(job.data, iteration);
        const computing = sum(lanes.flat().map((i) => i.energy));
        assertNear(computing, iteration.instruction_energy_j, target);
        assertNear(computing + iteration.blocking_energy_j, iteration.energy_j, target);
        assertNear(sum(iteration.lanes.map((l) => l.blocking_energy_j)), iteration.blocking_energy_j, target);
        iteration.lanes.forEach((lane, r) => {
          const waiting = job.data.job.blocking_power_w * (iteration.time_ns - lane.busy_ns) / 1e9;
          assertNear(lane.blocking_energy_j, waiting, `${target}, rank ${r}`);
          assertNear(sum(Object.values(lane.energy_j)), sum(lanes[r].map((i) => i.energy)), `${target}, rank ${r}`);
          for (const [kind, energy] of Object.entries(lane.energy_j)) {
            const ofKind = lanes[r].filter((i) => i.set.kind === kind);
            assertNear(energy, sum(ofKind.map((i) => i.energy)), `${target}, rank ${r}, ${kind}`);
          }
        });
      }
    });

    it("the last pp_rank ends exactly with the iteration", async () => {
      const job = await jobOf(name);
      for (const [target, iteration] of iterationsOf(job)) {
        const lanes = instructionsOf(job.data, iteration);
        lanes.forEach((lane, r) => {
          assert.ok(iteration.lanes[r].gaps_ns.every((gap) => Number.isInteger(gap) && gap >= 0), target);
          assert.equal(iteration.lanes[r].busy_ns, sum(lane.map((i) => i.duration)), `${target}, rank ${r}`);
        });
        assert.equal(Math.max(...lanes.flat().map((i) => i.end)), iteration.time_ns, target);
      }
    });

    it("switches of the pp_ranks add up to those of the iteration", async () => {
      for (const [target, iteration] of iterationsOf(await jobOf(name))) {
        assert.equal(sum(iteration.lanes.map((lane) => lane.switches)), iteration.switches, target);
      }
    });

    it("the critical path extends from the start to the end", async () => {
      const job = await jobOf(name);
      for (const [target, iteration] of iterationsOf(job)) {
        const critical = instructionsOf(job.data, iteration).flat().filter((i) => i.critical);
        assert.ok(critical.some((i) => i.start === 0), target);
        assert.ok(critical.some((i) => i.end === iteration.time_ns), target);
      }
    });

    it("plans are sorted, fastest first, within their deadlines and above their bounds", async () => {
      const { data } = await jobOf(name);
      data.plans.forEach((plan, i) => {
        assert.ok(i === 0 || plan.time_ns >= data.plans[i - 1].time_ns, plan.target);
        assert.ok(plan.time_ns <= nanoseconds(plan.deadline_s), plan.target);
        assert.ok(plan.lower_bound_j <= plan.energy_j * (1 + 1e-12), plan.target);
        // A plan that attains its bound may be a rounding error below it.
        assertNear(plan.gap, Math.max(0, plan.energy_j / plan.lower_bound_j - 1), plan.target, 1e-6);
      });
    });

    it("every instruction equals the plan file, to the last bit", async () => {
      const { data, plans } = await jobOf(name);
      data.plans.forEach((plan, p) => {
        const file = plans[p];
        assert.equal(plan.target, file.target);
        assert.equal(plan.time_ns, nanoseconds(file.time_s));
        assert.equal(plan.energy_j, file.energy_j);
        assert.equal(plan.lower_bound_j, file.lower_bound_j);
        assert.equal(plan.switches, file.switches);
        assert.equal(data.baseline.time_ns, nanoseconds(file.baseline.time_s));
        assert.equal(data.baseline.energy_j, file.baseline.energy_j);
        assert.deepEqual(data.pp_ranks.map((rank) => rank.name), file.pp_ranks.map((rank) => rank.name));
        instructionsOf(data, plan).forEach((lane, r) => {
          assert.equal(lane.length, file.pp_ranks[r].instructions.length);
          lane.forEach((shown, i) => {
            const said = file.pp_ranks[r].instructions[i];
            const where = `${plan.target}, rank ${r}, instruction ${i}`;
            assert.equal(shown.set.kind, said.kind, where);
            assert.equal(shown.microbatch, said.microbatch ?? -1, where);
            assert.equal(shown.start, nanoseconds(said.start_s), where);
            assert.equal(shown.duration, nanoseconds(said.duration_s), where);
            assert.equal(shown.energy, said.energy_j, where);
            // An instruction without a choice of clocks has none in the file.
            assert.equal(shown.set.frequency_mhz[shown.option], said.frequency ?? 0, where);
            assert.equal(shown.set.pp_rank, file.pp_ranks[r].pp_rank, where);
            if (said.chunk !== undefined) assert.equal(shown.set.chunk, said.chunk, where);
            if (said.name !== undefined) assert.equal(shown.set.name, said.name, where);
          });
        });
      });
    });

    it("plans and baseline equal the summary", async () => {
      const { data, summary } = await jobOf(name);
      assert.equal(data.plans.length, summary.plans.length);
      assert.equal(data.baseline.time_ns, nanoseconds(summary.baseline.time_s));
      assert.equal(data.baseline.energy_j, summary.baseline.energy_j);
      for (const plan of data.plans) {
        const said = summary.plans.find((s) => s.name === plan.name);
        for (const member of ["target", "energy_j", "switches", "lower_bound_j", "gap", "deadline_s"]) {
          assert.equal(plan[member], said[member], `${plan.name}: ${member}`);
        }
      }
    });

    it("the frontier equals frontier.csv, from end to end", async () => {
      const { data, frontier } = await jobOf(name);
      if (frontier.length === 0) {
        assert.equal(data.frontier, null);
        return;
      }
      assert.equal(data.frontier.breakpoints, frontier.length);
      const rows = new Map(frontier.map(([time, energy, watts]) => [nanoseconds(time), [energy, watts]]));
      const times = data.frontier.time_s.map(nanoseconds);
      assert.equal(times[0], nanoseconds(frontier[0][0]));
      assert.equal(times.at(-1), nanoseconds(frontier.at(-1)[0]));
      times.forEach((time, i) => {
        const [energy, watts] = rows.get(time);
        // The file has rounded values.
        assertNear(data.frontier.energy_j[i], energy, `bound at ${time} ns`, 1e-6);
        assertNear(data.frontier.marginal_w[i], watts, `price at ${time} ns`, 1e-5);
      });
    });
  });
}
