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

test("search finds a flag", async () => {
  await onPage(join(site, "index.html"), async (page) => {
    await page.locator("input.md-search__input").click();
    await page.keyboard.type("--max-switches");
    await page.locator(".md-search-result__item a").first().waitFor();
    const found = await page.locator(".md-search-result__item").allTextContents();
    assert.match(found.join(" "), /max-switches/);
  }, { timeout });
});

test("a copied command has no prompt, and does not run under the button", async () => {
  await onPage(join(site, "guide.html"), async (page) => {
    const block = page.locator(".language-console.highlight").first();
    const { copied, right, left } = await block.evaluate((element) => {
      const code = element.querySelector("code");
      code.setAttribute("data-md-copying", ""); // As the theme does while it copies.
      const text = code.innerText;
      code.removeAttribute("data-md-copying");
      return {
        copied: text,
        right: code.getBoundingClientRect().right,
        left: element.querySelector("button").getBoundingClientRect().left,
      };
    });
    assert.match(copied, /^perseus /);
    assert.doesNotMatch(copied, /\$ /);
    assert.ok(right <= left, `the text ends at ${right}, and the button begins at ${left}`);
  }, { width: 390, height: 844, timeout });
});

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
