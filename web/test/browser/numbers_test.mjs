// Tests that the page shows the values of the plan files, at every stop of the slider.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { pictureOf, settled, stopAt, wordsOf } from "./browser.mjs";
import { jobNames, jobOf, onJob, pipelineNames } from "./jobs.mjs";
import { assertShows, sum } from "./quantities.mjs";
import { instructionsOf, placesOn, waitsOf } from "./timeline.mjs";

const secondsOfMonth = 730 * 3600;
const price = 0.12;
const gramsPerKilowattHour = 400;
const countOf = (text) => Number(text.replaceAll(",", ""));

/** Checks the bar beside the slider. */
function checkBar(words, plan) {
  const { baseline } = plan;
  const expected = {
    time: plan.time_s,
    slowdown: plan.time_s / baseline.time_s - 1,
    energy: plan.energy_j,
    saving: 1 - plan.energy_j / baseline.energy_j,
    power: plan.average_power_w,
    gap: plan.gap,
  };
  assert.equal(words.target, plan.target);
  assert.deepEqual(Object.keys(words.numbers).sort(), Object.keys(expected).sort());
  for (const [id, value] of Object.entries(expected)) {
    if (id === "slowdown" && value <= 0) {
      assert.equal(words.numbers[id], "none");
      continue;
    }
    // A value below the last digit is shown as 0, without a sign.
    assertShows(words.numbers[id], value, `${plan.target}, ${id}`);
  }
  const [target, numbers] = words.spoken.split(": ");
  assert.equal(target, plan.target);
  const [time, energy] = numbers.split(", ");
  assertShows(time, plan.time_s, "spoken time");
  assertShows(energy, plan.energy_j, "spoken energy");
}

/** Checks the table of savings: each column is one plan for a number of pipelines. */
function checkSavings(words, plans, chosen, pipelines) {
  const [counts, targets] = words.savings.head;
  const columns = counts.slice(1).flatMap(({ text, columns }) => {
    const count = text.startsWith("One pipeline") ? 1 : Number(text.match(/(\d+) pipelines/)[1]);
    return Array(columns).fill(count);
  });
  assert.deepEqual([...new Set(columns)], pipelines === 1 ? [1] : [1, pipelines]);
  const rows = Object.fromEntries(words.savings.body.map(([name, ...cells]) => [name.text, cells]));
  assert.deepEqual(Object.keys(rows), ["Energy saved", "Money saved", "CO₂ saved", "Additional time"]);
  columns.forEach((count, i) => {
    const plan = plans.find((p) => p.target === targets[i + 1].text);
    const what = `${count} pipelines, ${plan.target}`;
    const iterations = (secondsOfMonth / plan.baseline.time_s) * count;
    const energy = (plan.baseline.energy_j - plan.energy_j) * iterations;
    const kilowattHours = energy / 3.6e6;
    assertShows(rows["Energy saved"][i].text, energy, what);
    assertShows(rows["Money saved"][i].text.replace("$", ""), kilowattHours * price, what);
    assertShows(rows["CO₂ saved"][i].text, (kilowattHours * gramsPerKilowattHour) / 1e3, what);
    const longer = 730 * 3600 * (plan.time_s / plan.baseline.time_s - 1);
    if (longer <= 0) assert.equal(rows["Additional time"][i].text, "none");
    else assertShows(rows["Additional time"][i].text, longer, what);
  });
  assert.ok(targets.slice(1).some((cell) => cell.text === chosen.target), "the chosen plan has a column");
}

/** Checks clocks, energies and sums of each pp_rank against the instructions in the plan file. */
function checkStages(words, job, plan, iteration) {
  const { body, foot, head, caption } = words.stages;
  assert.ok(caption.includes(plan.target));
  const names = head[1].map((cell) => cell.text);
  const clocks = names.indexOf("histogram") < 0 ? 0 : names.findIndex((n, i) => i > 0 && names.indexOf(n) < i) - 1;
  const clockKinds = names.slice(1, 1 + clocks);
  const energyKinds = names.slice(1 + clocks, -1);
  const said = (kind) => kind.replace("_", " ");
  const longest = Math.max(...job.data.baseline.lanes.map((lane) => lane.busy_ns));
  plan.pp_ranks.forEach((rank, r) => {
    const [name, balance, ...rest] = body[r];
    const what = `${plan.target}, rank ${r}`;
    assert.equal(name.text, rank.name);
    assertShows(balance.text, job.data.baseline.lanes[r].busy_ns / longest, what);
    const [histogram, ...cells] = rest;
    const adjustable = rank.instructions.filter((i) => i.frequency !== undefined);
    const byClock = new Map();
    for (const { frequency } of adjustable) byClock.set(frequency, (byClock.get(frequency) ?? 0) + 1);
    const expected = [...byClock].sort(([a], [b]) => a - b).map(([mhz, count]) => `${count} at ${mhz} MHz`);
    assert.equal(histogram.picture ?? "", expected.join(", "), what);
    clockKinds.forEach((kind, k) => {
      const mhz = adjustable.filter((i) => said(i.kind) === kind).map((i) => i.frequency);
      if (mhz.length === 0) return assert.equal(cells[k].text, "");
      assertShows(cells[k].text, sum(mhz) / mhz.length, `${what}, clock`);
      const [least, most] = [Math.min(...mhz), Math.max(...mhz)];
      if (least === most) return assert.equal(cells[k].small, null);
      const ends = cells[k].small.split("–");
      assertShows(ends[0], least, what);
      assertShows(ends[1], most, what);
    });
    const [switches, ...energies] = cells.slice(clockKinds.length);
    assert.equal(countOf(switches.text), iteration.lanes[r].switches, what);
    energyKinds.forEach((kind, k) => {
      const ofKind = rank.instructions.filter((i) => said(i.kind) === kind);
      if (ofKind.length === 0) assert.equal(energies[k].text, "");
      else assertShows(energies[k].text, sum(ofKind.map((i) => i.energy_j)), `${what}, ${kind}`);
    });
    const busy = sum(rank.instructions.map((i) => i.duration_s));
    const power = plan.job.blocking_power_w * plan.job.gpus_per_stage;
    const idle = Math.max(0, plan.time_s - busy);
    if (idle > 1e-9) assertShows(energies[energyKinds.length].text, power * idle, `${what}, waiting`);
  });
  const instructions = plan.pp_ranks.flatMap((rank) => rank.instructions);
  const [, , switches, ...totals] = foot[0];
  assert.equal(countOf(switches.text), plan.switches);
  energyKinds.forEach((kind, k) => {
    const total = sum(instructions.filter((i) => said(i.kind) === kind).map((i) => i.energy_j));
    assertShows(totals[k].text, total, `${plan.target}, all ${kind}`);
  });
  assertShows(totals[energyKinds.length].text,
    plan.energy_j - sum(instructions.map((i) => i.energy_j)), `${plan.target}, all waiting`);
}

/** Checks that instructions are painted where they run, and waiting in its color. */
async function checkCanvas(page, job, iteration) {
  const width = await page.locator("canvas").evaluate((canvas) => canvas.clientWidth);
  const place = placesOn(job.data, iteration, width);
  const points = [];
  [job.data.baseline, iteration].forEach((shown, group) => {
    instructionsOf(job.data, shown).forEach((lane, r) => {
      const add = (isBusy) => ({ start, end }) => {
        const [from, to] = [place(group, r, start), place(group, r, end)];
        // Labels are in the middle, outlines at the edges.
        const x = from.x + (to.x - from.x) * 0.2;
        if (x - from.x > 2.5) points.push({ x, y: from.y - from.height / 4, isBusy });
      };
      lane.forEach(add(true));
      waitsOf(lane, shown).forEach(add(false));
    });
  });
  const wrong = await page.evaluate((all) => {
    const canvas = document.querySelector("canvas");
    // Read from a copy, because the browser warns if a script often reads from a canvas.
    const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.fillStyle = getComputedStyle(canvas).getPropertyValue("--blocking");
    context.fillRect(0, 0, 1, 1);
    const waiting = context.getImageData(0, 0, 1, 1).data.join();
    context.clearRect(0, 0, 1, 1);
    context.drawImage(canvas, 0, 0);
    const { data, width } = context.getImageData(0, 0, copy.width, copy.height);
    return all.filter(({ x, y, isBusy }) => {
      const at = (Math.floor(y) * width + Math.floor(x)) * 4;
      const color = data.slice(at, at + 4);
      return color[3] !== 255 || (color.join() === waiting) === isBusy;
    });
  }, points);
  assert.deepEqual(wrong, [], `${iteration.target}: ${wrong.length} of ${points.length} places`);
}

describe("numbers", () => {
  for (const name of pipelineNames) {
    it(`${name}: the headline shows what the plan with no slowdown saves`, onJob(name, async (page, job) => {
      const [first] = job.summary.plans.filter((plan) => plan.name === "no-slowdown");
      const words = await wordsOf(page);
      assert.equal(words.stop, job.shown);
      assert.equal(words.target, job.plans[job.shown].target);
      assert.equal(words.title, "Perseus: profile.csv");
      const [, saving, rest] = words.headline.match(/^(.* %) less energy (.*)$/);
      assertShows(saving, first.saving, "headline");
      assert.equal(rest, "with no slowdown");
      const story = words.story.replace(/\s+/g, " ").match(
        /\((\d+) pp_ranks, (\d+) GPUs\) takes (.*) and uses (.*) with every .* The plan for no slowdown uses (.*)\. No plan for this target uses less than (.*)\. In a .* runs (.*) iterations/);
      assert.equal(Number(story[1]), job.plans[0].pp_ranks.length);
      assert.equal(Number(story[2]), job.summary.job.gpus_per_pipeline);
      assertShows(story[3], job.summary.baseline.time_s, "time at maximum frequency");
      assertShows(story[4], job.summary.baseline.energy_j, "energy at maximum frequency");
      assertShows(story[5], first.energy_j, "energy");
      assertShows(story[6], first.lower_bound_j, "bound");
      assertShows(story[7], secondsOfMonth / job.summary.baseline.time_s, "iterations");
    }));

    it(`${name}: bar, tables and timeline follow the slider to every stop`, onJob(name, async (page, job) => {
      await page.locator(".slider input").focus();
      await page.keyboard.press("Home");
      let before = null;
      for (let i = 0; i < job.plans.length; ++i) {
        if (i > 0) await page.keyboard.press("ArrowRight");
        await settled(page);
        const words = await wordsOf(page);
        assert.equal(words.stop, i);
        assert.equal(words.stops, job.plans.length);
        checkBar(words, job.plans[i]);
        checkSavings(words, job.plans, job.plans[i], job.summary.job.pipelines);
        checkStages(words, job, job.plans[i], job.data.plans[i]);
        assert.ok(words.frontier.includes(job.plans[i].target));
        assert.ok(words.timeline.includes(job.plans[i].target));
        await checkCanvas(page, job, job.data.plans[i]);
        const picture = await pictureOf(page);
        assert.notEqual(picture, before, `the timeline of ${job.plans[i].target}`);
        before = picture;
      }
      await page.keyboard.press("ArrowRight");
      assert.equal((await wordsOf(page)).stop, job.plans.length - 1);
    }));
  }

  it("dragging the slider chooses a plan too", onJob("8 x 12", async (page, job) => {
    const { x, y, width, height } = await page.locator(".slider input").boundingBox();
    await page.mouse.move(x + 8, y + height / 2);
    await page.mouse.down();
    await page.mouse.move(x + width - 8, y + height / 2, { steps: 5 });
    await page.mouse.up();
    await settled(page);
    checkBar(await wordsOf(page), job.plans.at(-1));
  }));

  it("price, grid and pipelines change money, CO₂ and energy in proportion", onJob("8 x 12", async (page, job) => {
    await stopAt(page, job.plans.length - 1);
    const plan = job.plans.at(-1);
    const iterations = secondsOfMonth / plan.baseline.time_s;
    const last = async () =>
      Object.fromEntries((await wordsOf(page)).savings.body.map((row) => [row[0].text, row.at(-1).text]));
    const energy = (plan.baseline.energy_j - plan.energy_j) * iterations;
    for (const [cents, grams, pipelines] of [[0.36, 400, 16], [0.36, 100, 16], [0.36, 100, 48], [0, 0, 1]]) {
      await page.fill("[name=price]", String(cents));
      await page.fill("[name=gramsPerKilowattHour]", String(grams));
      await page.fill("[name=pipelines]", String(pipelines));
      await settled(page);
      const shown = await last();
      assertShows(shown["Energy saved"], energy * pipelines, `${pipelines} pipelines`);
      assertShows(shown["Money saved"].replace("$", ""), (energy / 3.6e6) * pipelines * cents, `at ${cents}`);
      assertShows(shown["CO₂ saved"], ((energy / 3.6e6) * pipelines * grams) / 1e3, `at ${grams} g`);
    }
    // The page must not rewrite "0." while the reader types 0.35.
    await page.locator("[name=price]").click({ clickCount: 3 });
    await page.keyboard.type("0.35");
    await settled(page);
    assert.equal(await page.inputValue("[name=price]"), "0.35");
    assertShows((await last())["Money saved"].replace("$", ""), (energy / 3.6e6) * 0.35, "typed");
    // An invalid number changes nothing.
    await page.fill("[name=price]", "0.5");
    await settled(page);
    const before = await last();
    for (const typed of ["", "-3"]) {
      await page.fill("[name=price]", typed);
      await settled(page);
      assert.deepEqual(await last(), before);
    }
  }));

  it("every page stays below 2 MB, 8 x 96 among them", async () => {
    for (const name of jobNames) {
      const { html } = await jobOf(name);
      assert.ok(Buffer.byteLength(html) < 2_000_000, `${name}: ${Buffer.byteLength(html)} bytes`);
    }
  });
});
