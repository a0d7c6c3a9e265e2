// Tests themes, print, narrow screens, and use with a keyboard and with a screen reader.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { settled, stopAt, wordsOf } from "./browser.mjs";
import { jobNames, onJob } from "./jobs.mjs";
import { canvasLeft } from "./timeline.mjs";

const paper = { light: "rgb(255, 255, 255)", dark: "rgb(20, 24, 33)" };
const waiting = { light: "234,237,242,255", dark: "43,49,64,255" };

/** Returns the color of the page, and the color of waiting on the canvas: at the start of the lane of pp_rank 1. */
const colorsOf = async (page) => {
  await settled(page);
  return page.evaluate((left) => {
    const canvas = document.querySelector("canvas");
    const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, left + 4, 22 + 33 + 10, 1, 1, 0, 0, 1, 1);
    return {
      paper: getComputedStyle(document.body).backgroundColor,
      waiting: copy.getImageData(0, 0, 1, 1).data.join(),
    };
  }, canvasLeft);
};
const colors = (theme) => ({ paper: paper[theme], waiting: waiting[theme] });

describe("themes", () => {
  it("follows the system until the reader chooses a theme, and with auto", onJob("2 x 4", async (page) => {
    const press = async (shown) => {
      await page.locator("button.theme").click();
      assert.equal(await page.locator("button.theme").textContent(), `Theme: ${shown}`);
    };
    const system = (colorScheme) => page.emulateMedia({ colorScheme });
    assert.deepEqual(await colorsOf(page), colors("light"));
    await system("dark");
    assert.deepEqual(await colorsOf(page), colors("dark"));
    await press("light");
    assert.deepEqual(await colorsOf(page), colors("light"));
    await press("dark");
    await system("light");
    assert.deepEqual(await colorsOf(page), colors("dark"));
    await press("auto");
    assert.deepEqual(await colorsOf(page), colors("light"));
  }));

  it("opens in the dark theme if the system has it", onJob("2 x 4", async (page) => {
    assert.deepEqual(await colorsOf(page), colors("dark"));
  }, { colorScheme: "dark" }));

  for (const colorScheme of ["light", "dark"]) {
    it(`${colorScheme} text stands out from what is behind it (4.5 to 1)`, onJob("8 x 12", async (page) => {
      await stopAt(page, 2);
      assert.deepEqual(await page.evaluate(faintTexts), []);
    }, { colorScheme }));
  }
});

/** Runs in the page. Returns the texts with too little contrast, as "text: ratio". */
function faintTexts() {
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).slice(0, 3).map((c) => {
      const part = c / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (channels(color)[3] !== 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = [];
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.closest("title")) continue;
    const style = getComputedStyle(element);
    const color = element instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [luminance(color), luminance(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push(`${texts.currentNode.data}: ${ratio.toFixed(2)}`);
  }
  return faint;
}

describe("print", () => {
  for (const name of ["2 x 4 with latency", "8 x 12", "8 x 96", "16 x 512"]) {
    it(`${name}: print has a vector timeline and is light, even from a dark screen`, onJob(name, async (page, job) => {
      await page.locator("button.theme").click();
      await page.locator("button.theme").click();
      const pdf = await page.pdf({ format: "A4", printBackground: true });
      assert.ok(pdf.length > 20_000 && pdf.subarray(0, 5).toString() === "%PDF-", `${pdf.length} bytes`);
      assert.ok(!pdf.includes("/Subtype /Image"), "the PDF contains a picture, which may be the canvas");

      await page.emulateMedia({ media: "print" });
      await settled(page);
      assert.equal(await page.locator("canvas").count(), 0);
      const drawn = await page.evaluate(() => {
        const svg = document.querySelector(".timeline .chart svg");
        return {
          texts: Array.from(svg.querySelectorAll("text"), (text) => text.textContent),
          waiting: getComputedStyle(svg.querySelector("rect")).fill,
          paper: getComputedStyle(document.body).backgroundColor,
          ink: getComputedStyle(document.querySelector("h1")).color,
        };
      });
      assert.ok(drawn.texts.includes("Maximum frequency"));
      assert.ok(drawn.texts.includes(`Plan: ${job.plans[job.shown].target}`));
      assert.equal(drawn.waiting, "rgb(234, 237, 242)");
      assert.equal(drawn.paper, paper.light);
      assert.equal(drawn.ink, "rgb(26, 31, 43)");

      await page.emulateMedia({ media: "screen" });
      await settled(page);
      assert.equal(await page.locator("canvas").count(), 1);
      assert.equal((await colorsOf(page)).paper, paper.dark);
    }));
  }

  for (const name of ["2 x 4 with latency", "8 x 96"]) {
    it(`${name}: fits the width of a page`, onJob(name, async (page) => {
      await page.emulateMedia({ media: "print" });
      await settled(page);
      // The width of A4 without margins. As in real printing, nothing can measure its width again.
      const wide = await page.evaluate(() => {
        Object.assign(document.querySelector("main").style, { width: "718px", margin: "0" });
        return Array.from(document.querySelectorAll("main svg, main table, main p, main dl"))
          .filter((element) => element.getBoundingClientRect().right > 719)
          .map((element) => `${element.tagName} ${element.className.baseVal ?? element.className}`);
      });
      assert.deepEqual(wide, []);
    }));
  }
});

describe("layout", () => {
  for (const width of [1280, 390]) {
    for (const name of jobNames) {
      it(`${name}: fits into ${width} pixels, and no texts overlap at any stop`, onJob(name, async (page, job) => {
        for (const stop of [0, job.plans.length >> 1, job.plans.length - 1]) {
          await stopAt(page, stop);
          const { page: wide, overlaps } = await page.evaluate(() => ({
            page: document.documentElement.scrollWidth,
            overlaps: window.overlapsIn(".slider"),
          }));
          assert.ok(wide <= width, `the page is ${wide} pixels wide`);
          assert.deepEqual(overlaps, []);
          for (const place of [".top", ".headline", "svg.frontier", "svg.power", ".stages thead"]) {
            assert.deepEqual(await page.evaluate((p) => window.overlapsIn(p), place), [], place);
          }
        }
      }, { width, beforeLoad: defineOverlaps }));
    }
  }

  it("a tooltip at the edge of a narrow screen does not widen the page", onJob("8 x 12", async (page) => {
    for (const selector of ["svg.frontier", "canvas"]) {
      await page.locator(selector).evaluate((e) => e.scrollIntoView({ block: "center" }));
      const box = await page.locator(selector).boundingBox();
      for (const part of [0.25, 0.49, 0.51, 0.97]) {
        await page.mouse.move(box.x + box.width * part, box.y + box.height * 0.4);
        await settled(page);
        assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
        const tooltip = await page.locator(".tooltip").boundingBox();
        if (tooltip) assert.ok(tooltip.x >= 0 && tooltip.x + tooltip.width <= 390, `${selector} at ${part}`);
      }
    }
  }, { width: 390 }));

  it("adapts to a window whose size changes", onJob("8 x 12", async (page) => {
    await page.setViewportSize({ width: 500, height: 800 });
    await settled(page);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 500);
    const widths = await page.evaluate(() =>
      ["canvas", "svg.frontier"].map((s) => document.querySelector(s).getBoundingClientRect().width));
    for (const width of widths) assert.ok(width > 440 && width <= 500, `${width} pixels`);
  }));
});

/** Runs in the page. Defines window.overlapsIn(selector), which returns pairs of texts that overlap. */
function defineOverlaps() {
  window.overlapsIn = (selector) => {
    const root = document.querySelector(selector);
    const boxes = [];
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode.data.trim();
      if (!text || texts.currentNode.parentElement.closest("title")) continue;
      const range = document.createRange();
      range.selectNodeContents(texts.currentNode);
      for (const box of range.getClientRects()) boxes.push({ text, box, node: texts.currentNode });
    }
    const overlaps = [];
    boxes.forEach((a, i) => {
      for (const b of boxes.slice(i + 1)) {
        if (a.node === b.node) continue;
        const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
        const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
        // The box of a line is higher than its letters, so boxes may overlap a little.
        const height = Math.min(a.box.height, b.box.height);
        if (across > 1 && down > height * 0.3) overlaps.push(`"${a.text}" and "${b.text}"`);
      }
    });
    return overlaps;
  };
}

describe("accessibility", () => {
  it("the keyboard reaches all controls in their order", onJob("8 x 12", async (page) => {
    const reached = [];
    for (let i = 0; i < 20; ++i) {
      await page.keyboard.press("Tab");
      reached.push(await page.evaluate(() => {
        const e = document.activeElement;
        if (getComputedStyle(e).outlineStyle === "none" && e !== document.body) return "no outline";
        return e.name || e.type === "range" && "slider" || e.tagName === "CANVAS" && "timeline" || e.textContent;
      }));
    }
    const expected = ["Theme: auto", "price", "gramsPerKilowattHour", "pipelines", "slider", "timeline", "+", "−", "All"];
    assert.deepEqual(reached.slice(0, expected.length), expected);
  }));

  it("the theme button works by keyboard", onJob("2 x 4", async (page) => {
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Space");
    assert.deepEqual(await colorsOf(page), colors("dark"));
  }));

  it("slider keys go to the ends and by single steps", onJob("8 x 12", async (page, job) => {
    await page.locator(".slider input").focus();
    for (const [key, stop] of [["End", job.plans.length - 1], ["ArrowLeft", job.plans.length - 2], ["Home", 0], ["ArrowUp", 1]]) {
      await page.keyboard.press(key);
      await settled(page);
      assert.equal((await wordsOf(page)).stop, stop, key);
    }
  }));

  for (const name of jobNames) {
    it(`${name}: every picture has a name, every input a label, every button a text`, onJob(name, async (page) => {
      // What a screen reader receives. "- img" alone would be a picture without a name.
      const snapshot = await page.locator("body").ariaSnapshot();
      const nameless = snapshot.split("\n").filter((line) => /^\s*- (img|slider|spinbutton|button|region)(:|$)/.test(line));
      assert.deepEqual(nameless, []);
      for (const name of [/img "Frontier/, /img "Timeline/, /img "Colors/, /slider "Plan/]) assert.match(snapshot, name);
      const labels = await page.evaluate(() =>
        Array.from(document.querySelectorAll("input"), (input) => input.labels.length));
      assert.deepEqual(labels, labels.map(() => 1));
      assert.equal(await page.locator("h1").count(), 1);
      const levels = await page.evaluate(() =>
        Array.from(document.querySelectorAll("h1, h2, h3"), (h) => Number(h.tagName[1])));
      assert.ok(levels.every((level, i) => level - (levels[i - 1] ?? 0) <= 1), levels.join());
      assert.equal(await page.evaluate(() => document.documentElement.lang), "en");
      const ids = await page.evaluate(() => Array.from(document.querySelectorAll("[id]"), (e) => e.id));
      assert.equal(new Set(ids).size, ids.length);
    }));
  }
});
