// Tests the report page in a browser: the program plans jobs, and the browser opens their reports from
// files, as a reader does.
//
//   node test/browser/main.mjs PERSEUS [CHROMIUM]
import { after, before } from "node:test";
import { launch, quit } from "./browser.mjs";
import { cleanUp, program } from "./jobs.mjs";

if (!program) {
  console.error("usage: node test/browser/main.mjs PERSEUS [CHROMIUM]");
  process.exit(2);
}
before(launch);
after(async () => {
  await quit();
  cleanUp();
});
await import("./numbers_test.mjs");
await import("./charts_test.mjs");
await import("./appearance_test.mjs");
await import("./hostile_test.mjs");
await import("./schedules_test.mjs");
