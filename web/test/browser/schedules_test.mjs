// Tests the section on schedules and memory, which the page has if the schedule was searched for.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { settled } from "./browser.mjs";
import { jobNames, onJob } from "./jobs.mjs";
import { assertShows } from "./quantities.mjs";

describe("schedules", () => {
  it("4 x 12 auto: the table has the found schedules and their savings", onJob("4 x 12 auto", async (page, job) => {
    const { reference, found } = job.summary.schedule_search;
    const section = page.locator("section.schedules");
    const rows = await section.locator("tbody tr").evaluateAll((all) =>
      all.map((row) => [...row.children].map((cell) => cell.textContent)),
    );
    assert.equal(rows.length, 2);
    for (const [i, schedule] of [reference, found].entries()) {
      const [, inFlight, saving, bound] = rows[i];
      assert.equal(inFlight, schedule.in_flight.join(" "));
      assertShows(saving, schedule.saving, "saving");
      if (schedule.most_saving !== undefined) assertShows(bound, schedule.most_saving, "bound");
    }
    assert.equal(rows[0][0], reference.schedule);
    const sentences = await section.locator("p.conclusion").allTextContents();
    assert.match(sentences.join(" "), /microbatch(es)? in flight on pp_ranks .* saves? another .* %/);
  }));

  it("4 x 12 auto: the timelines of both schedules differ", onJob("4 x 12 auto", async (page) => {
    const canvas = page.locator("section.schedules canvas");
    await canvas.scrollIntoViewIfNeeded();
    await settled(page);
    // The halves of the picture: the timeline of each schedule.
    const halves = await canvas.evaluate((element) => {
      const copy = document.createElement("canvas");
      copy.width = element.width;
      copy.height = element.height;
      const context = copy.getContext("2d", { willReadFrequently: true });
      context.drawImage(element, 0, 0);
      const half = Math.floor(element.height / 2);
      return [0, half].map((y) => context.getImageData(0, y, element.width, half).data.join());
    });
    assert.notEqual(halves[0], halves[1]);
  }));

  for (const name of jobNames.filter((name) => name !== "4 x 12 auto" && name !== "16 x 512")) {
    it(`${name}: the page has no such section`, onJob(name, async (page) => {
      assert.equal(await page.locator("section.schedules").count(), 0);
    }));
  }
});
