// Tests names that look like HTML, and incomplete pages.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { onPage, settled, stopAt, tooltipOf, wordsOf } from "./browser.mjs";
import { dataIn, hostileNames, jobOf, onJob } from "./jobs.mjs";
import { placesOn } from "./timeline.mjs";

const elementsOf = (page) =>
  page.evaluate(() => ({
    scripts: document.querySelectorAll("script").length,
    pictures: document.querySelectorAll("img").length,
    handlers: document.querySelectorAll("[onerror], [onload]").length,
    outside: Array.from(document.body.children, (e) => e.tagName),
  }));
// The three scripts: the data, the program, and the licenses of its libraries.
const ours = {
  scripts: 3, pictures: 0, handlers: 0, outside: ["MAIN", "SCRIPT", "SCRIPT", "SCRIPT"],
};

describe("names that look like HTML", () => {
  it("are shown as text, and none becomes an element", onJob("hostile", async (page, job) => {
    const words = await wordsOf(page);
    assert.deepEqual(words.stages.body.map((row) => row[0].text).sort(), hostileNames.slice().sort());
    assert.deepEqual(await elementsOf(page), ours);

    // In the tooltip, too.
    await page.locator("canvas").evaluate((canvas) => canvas.scrollIntoView({ block: "center" }));
    const box = await page.locator("canvas").boundingBox();
    const [plan] = job.data.plans;
    const place = placesOn(job.data, plan, box.width);
    for (let r = 0; r < hostileNames.length; ++r) {
      const lane = plan.lanes[r];
      const { x, y } = place(1, r, lane.gaps_ns[0] + lane.busy_ns / 2);
      await page.mouse.move(box.x + x, box.y + y);
      const { title, lines } = await tooltipOf(page);
      const set = job.data.option_sets[job.data.pp_ranks[r].option_sets[0]];
      assert.ok(title.includes(set.name), title);
      assert.ok(lines[0].includes(job.data.pp_ranks[r].name), lines[0]);
    }
    await stopAt(page, job.plans.length - 1);
    assert.deepEqual(await elementsOf(page), ours);
    await page.emulateMedia({ media: "print" });
    await settled(page);
    assert.deepEqual(await elementsOf(page), ours);
  }));

  it("are complete in the data of the page", async () => {
    const job = await jobOf("hostile");
    assert.deepEqual(job.data.option_sets.map((set) => set.name), hostileNames);
    assert.equal((job.html.match(/<\/script/g) ?? []).length, 3);
  });
});

describe("an incomplete page", () => {
  const apology = /^This report cannot be shown: .*Make it again with perseus/s;
  const damages = {
    "whose data ends early": (data) => data.slice(0, data.length / 2),
    "without data": () => "",
    "of another version": (data) => data.replace('"version":1', '"version":99'),
    "with something else in place of the data": () => '{"format":"perseus-plan","version":1}',
    "whose data has no plans": (data) => JSON.stringify({ ...JSON.parse(data), plans: [] }),
    "whose data has no pp_ranks": (data) => JSON.stringify({ ...JSON.parse(data), pp_ranks: undefined }),
  };
  const damaged = async (name, change) => {
    const job = await jobOf("2 x 4");
    const file = join(job.directory, `${name.replaceAll(" ", "-")}.html`);
    writeFileSync(file, change(job.html));
    return file;
  };
  for (const [name, change] of Object.entries(damages)) {
    it(`${name} shows an error`, async () => {
      const file = await damaged(name, (html) => html.replace(dataIn(html), () => change(dataIn(html))));
      await onPage(file, async (page) => {
        assert.match(await page.locator("main").textContent(), apology);
        assert.deepEqual((await elementsOf(page)).outside, ours.outside);
      });
    });
  }

  it("whose file ends early shows an error", async () => {
    const job = await jobOf("2 x 4");
    const middle = job.html.indexOf(dataIn(job.html)) + 5000;
    const file = await damaged("file ends early", (html) => html.slice(0, middle));
    await onPage(file, async (page) => {
      await page.getByText(apology).waitFor({ state: "visible" });
    });
  });

  it("is not reported if the page is complete", onJob("2 x 4", async (page) => {
    assert.doesNotMatch(await page.locator("body").innerText(), /cannot be shown/);
  }));
});
