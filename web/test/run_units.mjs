// Runs the unit tests: bundles test/units/*_test.ts(x) into one file and runs it.
//
//   node test/run_units.mjs
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { buildSync } from "esbuild";

const units = join(dirname(fileURLToPath(import.meta.url)), "units");
const tests = readdirSync(units).filter((name) => /_test\.tsx?$/.test(name)).sort();
const scratch = mkdtempSync(join(tmpdir(), "perseus-units-"));
after(() => rmSync(scratch, { recursive: true }));

const bundle = join(scratch, "units.mjs");
buildSync({
  stdin: {
    contents: tests.map((name) => `import "./${name}";`).join("\n"),
    resolveDir: units,
  },
  outfile: bundle,
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node18",
  jsx: "automatic",
  jsxImportSource: "preact",
  sourcemap: "inline",
  logLevel: "error",
});
process.setSourceMapsEnabled(true);
await import(pathToFileURL(bundle).href);
