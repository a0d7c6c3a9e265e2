// The browser that all tests share, and functions for its pages.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const executablePath = process.argv[3] ?? process.env.CHROMIUM ?? "/usr/bin/chromium";

let browser;
export async function launch() {
  assert.ok(existsSync(executablePath), `no browser at ${executablePath} (apt-get install chromium)`);
  browser = await chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}
export const quit = () => browser?.close();

/**
 * Opens a file and calls `look` with the page. Fails if the page logs an error or a warning, sends a
 * request to the network, or opens a dialog.
 */
export async function onPage(file, look, { width = 1280, height = 900, timeout = 60_000, beforeLoad, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: "light", ...options });
  const complaints = [];
  context.on("request", (request) => {
    if (!/^(file|data):/.test(request.url())) complaints.push(`requested ${request.url()}`);
  });
  const page = await context.newPage();
  page.setDefaultTimeout(timeout);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", (dialog) => {
    complaints.push(`opened a dialog: ${dialog.message()}`);
    return dialog.dismiss();
  });
  try {
    if (beforeLoad) await page.addInitScript(beforeLoad);
    await page.goto(pathToFileURL(file).href);
    await settled(page);
    await look(page);
    await settled(page);
  } finally {
    await context.close();
  }
  assert.deepEqual(complaints, []);
}

/** Waits until the page has drawn: rendering takes one frame, and the canvas takes another. */
export const settled = (page) =>
  page.evaluate(async () => {
    for (let i = 0; i < 2; ++i) {
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    }
  });

/** Returns all texts and numbers of the page. */
export const wordsOf = (page) =>
  page.evaluate(() => {
    const text = (element) => element.textContent.trim();
    const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
    const rows = (selector) =>
      all(selector).map((row) =>
        Array.from(row.cells).map((cell) => {
          // The small text of a cell is separate.
          const small = cell.querySelector("small");
          const main = small ? text(cell).slice(0, -text(small).length) : text(cell);
          return { text: main, small: small && text(small), columns: cell.colSpan,
            picture: cell.querySelector("svg")?.getAttribute("aria-label") };
        }),
      );
    const range = document.querySelector(".slider input");
    return {
      title: document.title,
      headline: text(document.querySelector("h1")),
      story: text(document.querySelector(".headline > p")),
      target: text(document.querySelector(".slider strong")),
      stop: range.valueAsNumber,
      stops: Number(range.max) + 1,
      spoken: range.getAttribute("aria-valuetext"),
      numbers: Object.fromEntries(all("[data-number]").map((e) => [e.dataset.number, text(e)])),
      savings: { head: rows(".savings thead tr"), body: rows(".savings tbody tr") },
      stages: { caption: text(document.querySelector(".stages caption")),
        head: rows(".stages thead tr"), body: rows(".stages tbody tr"), foot: rows(".stages tfoot tr") },
      frontier: document.querySelector("svg.frontier").getAttribute("aria-label"),
      timeline: document.querySelector("canvas")?.getAttribute("aria-label"),
    };
  });

export const pictureOf = (page) => page.evaluate(() => document.querySelector("canvas").toDataURL());
export const zoomOf = async (page) => Number(await page.getAttribute("canvas", "data-zoom"));
export const tooltipOf = async (page) => {
  await settled(page);
  const lines = await page.locator(".tooltip > *").allTextContents();
  return { title: lines[0], lines: lines.slice(1) };
};

/** Moves the slider to stop i, with the keyboard. */
export async function stopAt(page, i) {
  const range = page.locator(".slider input");
  await range.focus();
  await page.keyboard.press("Home");
  for (let k = 0; k < i; ++k) await page.keyboard.press("ArrowRight");
  await settled(page);
}
