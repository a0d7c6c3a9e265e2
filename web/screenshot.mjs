// Makes a picture of a report for the documents: screenshot.mjs REPORT.html PICTURE.png
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [report, picture] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
const page = await browser.newPage({
  viewport: { width: 1180, height: 1500 },
  deviceScaleFactor: 1.5,
  colorScheme: "light",
});
await page.goto(pathToFileURL(resolve(report)).href);
// The picture shows the page from the headline to the end of the timeline.
const end = await page.evaluate(() => document.querySelector(".zoom").getBoundingClientRect().bottom);
await page.screenshot({
  path: picture,
  clip: { x: 0, y: 0, width: 1180, height: end + 16 },
  fullPage: true,
});
await browser.close();
