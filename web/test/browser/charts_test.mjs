// Tests pointing, clicking and keys on the two charts.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { pictureOf, settled, stopAt, tooltipOf, wordsOf, zoomOf } from "./browser.mjs";
import { onJob, pipelineNames } from "./jobs.mjs";
import { assertShows } from "./quantities.mjs";
import { instructionsOf, placesOn, waitsOf } from "./timeline.mjs";

const middle = ({ start, end }) => (start + end) / 2;
const longest = (stretches) => stretches.reduce((a, b) => (b.end - b.start > a.end - a.start ? b : a));
const letters = { forward: "F", backward: "B", load: "L", all_reduce: "A", optimizer: "O" };

/** Moves the pointer to a place of an element. */
async function pointAt(page, selector, { x, y }) {
  await page.locator(selector).scrollIntoViewIfNeeded();
  const box = await page.locator(selector).boundingBox();
  await page.mouse.move(box.x + x, box.y + y);
}

/** Scrolls so that the bar, which stays on top, hides nothing of the chart. */
const bringUp = (page, selector) =>
  page.locator(selector).evaluate((element) => {
    const bar = document.querySelector(".slider").offsetHeight;
    window.scrollTo(0, window.scrollY + element.getBoundingClientRect().top - bar - 20);
  });

describe("frontier", () => {
  for (const name of ["2 x 4", "8 x 12", "8 x 96", "16 x 512"]) {
    it(`${name}: pointing at a plan shows its values, and a click chooses it`, onJob(name, async (page, job) => {
      await bringUp(page, "svg.frontier");
      for (const i of [job.plans.length - 1, job.plans.length >> 1, 0]) {
        // Plans are the circles, in the order of the slider.
        const place = await page.locator("svg.frontier circle").nth(i).evaluate((circle) => ({
          x: circle.cx.baseVal.value,
          y: circle.cy.baseVal.value,
        }));
        await pointAt(page, "svg.frontier", place);
        const { title, lines } = await tooltipOf(page);
        const plan = job.plans[i];
        assert.equal(title, plan.target);
        const [time, energy] = lines[0].split(", ");
        assertShows(time, plan.time_s, "time");
        assertShows(energy, plan.energy_j, "energy");
        assertShows(lines[1].replace("saves ", ""), 1 - plan.energy_j / plan.baseline.energy_j, "saving");
        const [, bound, gap] = lines[2].match(/^bound (.*), gap (.*)$/);
        assertShows(bound, plan.lower_bound_j, "bound");
        assertShows(gap, plan.gap, "gap");
        const box = await page.locator("svg.frontier").boundingBox();
        await page.mouse.click(box.x + place.x, box.y + place.y);
        await settled(page);
        assert.equal((await wordsOf(page)).target, plan.target);
      }
      await page.mouse.move(2, 2);
      await settled(page);
      assert.equal(await page.locator(".tooltip").count(), 0);
    }));
  }

  it("pointing at the bound shows a breakpoint", onJob("8 x 12", async (page, job) => {
    await bringUp(page, "svg.frontier");
    for (const part of [0.1, 0.35, 0.8]) {
      // A point above the curve, away from plans: only its time counts.
      const place = await page.locator("svg.frontier path[stroke-width='2']").first().evaluate((path, along) => {
        const { x, y } = path.getPointAtLength(along * path.getTotalLength());
        return { x, y: y - 60 };
      }, part);
      await pointAt(page, "svg.frontier", place);
      const { title, lines } = await tooltipOf(page);
      assert.equal(title, "bound");
      const [time, energy] = lines[0].split(", ");
      const shown = Number(time.replace(" s", ""));
      const near = job.frontier.filter(([t]) => Math.abs(t - shown) <= 0.5e-5);
      assert.ok(near.length > 0, `${time} is no breakpoint`);
      const fits = ([t, bound, watts]) => {
        assertShows(energy, bound, "bound");
        assertShows(lines[1].replace(" slowdown", ""), t / job.summary.baseline.time_s - 1, "slowdown");
        assertShows(lines[2].match(/one more millisecond saves (.*) of instruction energy/)[1], watts / 1e3, "price");
      };
      // Several breakpoints may share the digits that are shown.
      assert.ok(near.some((row) => {
        try {
          fits(row);
          return true;
        } catch {
          return near.length === 1 ? fits(row) : false;
        }
      }), lines.join("; "));
    }
  }));

  it("the cross shows maximum frequency, and a click on it chooses nothing", onJob("8 x 12", async (page, job) => {
    await bringUp(page, "svg.frontier");
    const place = await page.locator("svg.frontier path[transform]").first().evaluate((path) => {
      const { e, f } = path.transform.baseVal.getItem(0).matrix;
      return { x: e, y: f };
    });
    await pointAt(page, "svg.frontier", place);
    const { title, lines } = await tooltipOf(page);
    assert.equal(title, "maximum frequency");
    const [time, energy] = lines[0].split(", ");
    assertShows(time, job.summary.baseline.time_s, "time");
    assertShows(energy, job.summary.baseline.energy_j, "energy");
    await page.mouse.down();
    await page.mouse.up();
    await settled(page);
    assert.equal((await wordsOf(page)).target, job.plans[0].target);
  }));
});

describe("timeline", () => {
  for (const name of pipelineNames) {
    it(`${name}: pointing shows what runs there, or that the pp_rank waits`, onJob(name, async (page, job) => {
      const last = job.plans.length - 1;
      await stopAt(page, last);
      await bringUp(page, "canvas");
      const width = await page.locator("canvas").evaluate((canvas) => canvas.clientWidth);
      const shown = job.data.plans[last];
      const place = placesOn(job.data, shown, width);
      for (const [group, iteration] of [[0, job.data.baseline], [1, shown]]) {
        const lanes = instructionsOf(job.data, iteration);
        for (const rank of new Set([0, 1, lanes.length - 1])) {
          for (const instruction of [lanes[rank][0], longest(lanes[rank]), lanes[rank].at(-1)]) {
            await pointAt(page, "canvas", place(group, rank, middle(instruction)));
            const { title, lines } = await tooltipOf(page);
            // If an instruction is narrower than a pixel, its neighbor may be under the pointer.
            const wide = place(0, 0, instruction.end).x - place(0, 0, instruction.start).x > 1.5;
            const found = wide ? instruction : lanes[rank].find((i) => title === titleOf(i));
            checkTooltip(title, lines, found, job, rank, group ? shown.target : "Maximum frequency");
          }
          const waits = waitsOf(lanes[rank], iteration);
          if (waits.length === 0) continue;
          const wait = longest(waits);
          if (place(0, 0, wait.end).x - place(0, 0, wait.start).x < 1.5) continue;
          await pointAt(page, "canvas", place(group, rank, middle(wait)));
          const { title, lines } = await tooltipOf(page);
          assert.equal(title, "waits");
          const [duration, start] = lines.at(-1).split(" from ");
          assertShows(duration, (wait.end - wait.start) / 1e9, "waiting");
          assertShows(start, wait.start / 1e9, "start of waiting");
        }
      }
      // After the end of the faster iteration, nothing is under the pointer.
      await pointAt(page, "canvas", place(0, 0, shown.time_ns));
      assert.equal((await tooltipOf(page)).title, undefined);
    }));
  }

  it("zooms by keys, buttons and ctrl with the wheel, and shows all again", onJob("8 x 12", async (page) => {
    await bringUp(page, "canvas");
    await page.locator("canvas").focus();
    const press = async (key) => {
      await page.keyboard.press(key);
      await settled(page);
      return zoomOf(page);
    };
    const whole = await pictureOf(page);
    assert.equal(await zoomOf(page), 1);
    assert.equal(await press("+"), 1.5);
    assert.equal(await press("="), 2.25);
    const before = await pictureOf(page);
    assert.notEqual(before, whole);
    assert.equal(await press("ArrowRight"), 2.25);
    assert.notEqual(await pictureOf(page), before);
    await press("ArrowLeft");
    assert.equal(await press("-"), 1.5);
    assert.equal(await press("0"), 1);
    assert.equal(await pictureOf(page), whole);
    assert.equal(await press("-"), 1, "zooming out stops at the whole iteration");

    await page.getByRole("button", { name: "Zoom in" }).click();
    await settled(page);
    assert.equal(await zoomOf(page), 2);
    await page.getByRole("button", { name: "Zoom out" }).click();
    await settled(page);
    assert.equal(await zoomOf(page), 1);

    await pointAt(page, "canvas", { x: 600, y: 100 });
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -400);
    await page.keyboard.up("Control");
    await settled(page);
    assert.ok((await zoomOf(page)) > 1.2);
    await page.getByRole("button", { name: "All" }).click();
    await settled(page);
    assert.equal(await zoomOf(page), 1);
  }));

  it("a plain wheel scrolls the page, and does not zoom", onJob("8 x 12", async (page) => {
    await bringUp(page, "canvas");
    await pointAt(page, "canvas", { x: 600, y: 100 });
    const before = await page.evaluate(() => window.scrollY);
    await page.mouse.wheel(0, 200);
    await page.waitForFunction((y) => window.scrollY > y, before);
    assert.equal(await zoomOf(page), 1);
  }));

  it("moves with the pointer that drags it", onJob("8 x 12", async (page) => {
    await bringUp(page, "canvas");
    await page.locator("canvas").focus();
    for (let i = 0; i < 4; ++i) await page.keyboard.press("+");
    await settled(page);
    // What is under the pointer stays under it.
    await pointAt(page, "canvas", { x: 500, y: 22 + 11 });
    const { title } = await tooltipOf(page);
    await page.mouse.down();
    const box = await page.locator("canvas").boundingBox();
    await page.mouse.move(box.x + 640, box.y + 33, { steps: 4 });
    await page.mouse.up();
    await pointAt(page, "canvas", { x: 640, y: 33 });
    assert.equal((await tooltipOf(page)).title, title);
  }));

  it("keeps the zoom while the slider moves", onJob("8 x 12", async (page) => {
    await page.locator("canvas").focus();
    await page.keyboard.press("+");
    await stopAt(page, 2);
    assert.equal(await zoomOf(page), 1.5);
  }));
});

const titleOf = ({ set, microbatch }) => `${letters[set.kind]}${microbatch < 0 ? "" : microbatch}: ${set.name}`;

function checkTooltip(title, lines, instruction, job, rank, iteration) {
  assert.equal(title, titleOf(instruction));
  assert.ok(title.includes(instruction.set.kind.replace("_", " ")) || title.includes(instruction.set.kind), title);
  assert.ok(lines[0].startsWith(`${job.data.pp_ranks[rank].name}, `) && lines[0].includes(iteration), lines[0]);
  const mhz = instruction.set.frequency_mhz[instruction.option];
  const clock = lines.find((line) => line.endsWith(" MHz"));
  if (mhz > 0) assertShows(clock, mhz, "clock");
  else assert.equal(clock, undefined);
  const [duration, start] = lines.find((line) => line.includes(" from ")).split(" from ");
  assertShows(duration, instruction.duration / 1e9, `duration of ${title}`);
  assertShows(start, instruction.start / 1e9, `start of ${title}`);
  const [, energy, power, critical] = lines.at(-1).match(/^(.*) of \d+ GPUs? at (.*?)(, critical)?$/);
  assertShows(energy, instruction.energy, `energy of ${title}`);
  const watts = instruction.energy / (instruction.duration / 1e9) / job.data.job.gpus_per_stage;
  assertShows(power, watts, `power of ${title}`);
  assert.equal(critical !== undefined, instruction.critical);
}
