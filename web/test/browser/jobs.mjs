// The jobs of the browser tests. The real program plans them and writes their reports.
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { onPage } from "./browser.mjs";

const execute = promisify(execFile);

const given = process.argv[2] ?? process.env.PERSEUS;
export const program = given && resolve(given);
const scratch = mkdtempSync(join(tmpdir(), "perseus-browser-"));
const stopping = new AbortController();
export function cleanUp() {
  stopping.abort(); // If only some tests ran, the program may still be planning other jobs.
  rmSync(scratch, { recursive: true, force: true });
}

export const hostileNames = [
  "<script>alert(1)</script>",
  '"><img src=x onerror=alert(1)>',
  "</script><b>",
];

const pipeline = (stages, microbatches, ...more) => ({
  stages,
  flags: ["--schedule", "1f1b", "--microbatches", String(microbatches), "--blocking-power", "83.64", ...more],
});

// `shown` is the plan that the page opens with: the plan of the first flag that requests one.
const specs = {
  "2 x 4": pipeline(2, 4),
  // Load, all-reduce and optimizer have no clock. With a latency, durations differ from the options.
  "2 x 4 with latency": pipeline(2, 4, "--gpus-per-stage", "2", "--pipelines", "3",
    "--switch-latency", "5", "--p2p", "0.001", "--load", "0.004", "--all-reduce", "0.03",
    "--optimizer", "0.01"),
  // Its page has a section on schedules and memory, with timelines of its own.
  "4 x 12 auto": {
    stages: 4,
    isSearched: true,
    flags: ["--schedule", "auto", "--max-in-flight", "6", "--microbatches", "12", "--blocking-power", "83.64"],
  },
  "8 x 12": pipeline(8, 12, "--gpus-per-stage", "8", "--pipelines", "16"),
  "8 x 96": pipeline(8, 96, "--gpus-per-stage", "8", "--pipelines", "16"),
  // The frontier of this job would take minutes.
  "16 x 512": { shown: "slowdown-5", ...pipeline(16, 512, "--no-frontier", "--slowdown", "5", "--min-energy") },
  hostile: {
    graph: {
      instructions: hostileNames.map((name, i) => ({
        name,
        resource: hostileNames[(i + 1) % hostileNames.length],
        options: [
          { frequency: 1410, time: 0.05, energy: 23.8 },
          { frequency: 1200, time: 0.06, energy: 20.1 },
        ],
      })),
      dependencies: [{ from: hostileNames[0], to: hostileNames[2], delay: 0.001 }],
      blocking_power: 83.64,
    },
    flags: ["--slowdown", "10"],
    shown: "slowdown-10",
  },
};
export const jobNames = Object.keys(specs);
export const pipelineNames = jobNames.filter((name) => specs[name].stages && !specs[name].isSearched);

async function plan(name) {
  const { stages, graph, flags, shown = "no-slowdown" } = specs[name];
  const directory = join(scratch, name.replaceAll(" ", "-"));
  mkdirSync(directory);
  const run = (...args) => execute(program, args, { cwd: directory, signal: stopping.signal });
  if (graph) {
    writeFileSync(join(directory, "work.json"), JSON.stringify(graph));
    await run("plan", "--graph", "work.json", ...flags, "-o", "out");
  } else {
    await run("synth", "--gpu", "a100", "--stages", String(stages), "-o", "profile.csv");
    await run("plan", "profile.csv", "--per-instruction", ...flags, "-o", "out");
  }
  const read = (file) => readFileSync(join(directory, "out", file), "utf8");
  const html = read("report.html");
  const summary = JSON.parse(read("summary.json"));
  const data = JSON.parse(dataIn(html));
  return {
    name,
    directory,
    page: join(directory, "out", "report.html"),
    html,
    data, // The data in the page.
    summary,
    shown: data.plans.findIndex((p) => p.name === shown),
    // The files in plans/, in the order of the slider.
    plans: data.plans.map((p) => JSON.parse(read(`plans/${p.name}.json`))),
    frontier: summary.files.includes("frontier.csv")
      ? read("frontier.csv").trim().split("\n").slice(1).map((row) => row.split(",").map(Number))
      : [],
  };
}

/** Returns the text of the data in a page. */
export const dataIn = (html) =>
  html.match(/<script type="application\/json" id="perseus-report">(.*?)<\/script>/s)[1];

// Plans two jobs at a time. The slowest one begins early, while the browser tests small ones.
const results = new Map();
function planInTurn(names) {
  let before = Promise.resolve();
  for (const name of names) {
    const result = before.then(() => plan(name));
    result.catch(() => {}); // The test that needs the job receives the error.
    results.set(name, result);
    before = result.catch(() => {});
  }
}
planInTurn(["2 x 4", "2 x 4 with latency", "hostile", "8 x 12", "16 x 512", "4 x 12 auto"]);
planInTurn(["8 x 96"]);

export const jobOf = (name) => results.get(name);

/** Returns a test that calls `look` with the report page of the job, and with the job. */
export const onJob = (name, look, options) => async () => {
  const job = await jobOf(name);
  await onPage(job.page, (page) => look(page, job), options);
};
