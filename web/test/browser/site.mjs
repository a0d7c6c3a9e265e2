// Tests the documentation site in a browser, from files, as a reader without a network opens it. The test
// tests/docs/check_site runs this.
//
//   node test/browser/site.mjs SITE [CHROMIUM]
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, onPage, quit } from "./browser.mjs";

const site = process.argv[2];
const timeout = 60_000; // The search reads a large index, and other tests may run beside this one.
before(launch);
after(quit);

/** No element is wider than the page, but for those that scroll by themselves. */
const fits = (page) => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);

for (const [device, width, height] of [["a phone", 390, 844], ["a wide screen", 1920, 1080]]) {
  test(`pages fit on ${device}`, async () => {
    for (const name of ["index", "formats", "reference/http-api", "reference/commands/plan", "algorithm"]) {
      await onPage(join(site, `${name}.html`), async (page) => assert.ok(await fits(page), name), { width, height, timeout });
    }
  });
}

test("search finds a page, without a server", async () => {
  await onPage(join(site, "index.html"), async (page) => {
    await page.locator("input.md-search__input").click();
    await page.keyboard.type("power cap");
    const result = page.locator(".md-search-result__item a").first();
    await result.waitFor();
    await result.click();
    await page.waitForURL(/power-cap|guide|commands|emulat/);
  }, { timeout });
});
