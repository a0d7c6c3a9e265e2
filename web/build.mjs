// Writes a C++ file with two texts, which the program contains: the report page with its scripts and
// styles, and the script that draws figures in the JavaScript engine of the program.
//
//   node build.mjs assets.cc
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import ts from "typescript";

const root = dirname(fileURLToPath(import.meta.url));

/** Returns the bundled text, and the names of the packages that it contains. */
function bundle(entry, options) {
  const result = buildSync({
    metafile: true,
    absWorkingDir: root,
    entryPoints: [entry],
    bundle: true,
    write: false,
    format: "iife",
    charset: "utf8",
    legalComments: "inline",
    jsx: "automatic",
    jsxImportSource: "preact",
    define: { "process.env.NODE_ENV": '"production"' },
    ...options,
  });
  const packages = new Set(
    Object.keys(result.metafile.inputs)
      .map((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1])
      .filter((name) => name !== undefined),
  );
  return { text: result.outputFiles[0].text, packages };
}

/** Returns the license notices of the packages. They must accompany the code. */
function licenses(packages) {
  return [...packages].sort().map((name) => {
    const folder = `${root}/node_modules/${name}`;
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
    const text = file ? readFileSync(`${folder}/${file}`, "utf8").trim() : `License: ${license}`;
    return `${name} ${version}\n\n${text}\n`;
  }).join("\n");
}

export function makePage() {
  const { text: script, packages } = bundle("src/page/main.tsx", { minify: true, target: "es2020" });
  const { text: style } = bundle("src/page/page.css", { minify: true });
  const template = readFileSync(`${root}/src/report.html`, "utf8");
  // The replacements are functions because the texts may contain "$&". A script must not contain the
  // end tag of its own element.
  return template
    .replace("/* licenses */", () => licenses(packages).replaceAll("</", "<\\/"))
    .replace("/* style */", () => style.trim())
    .replace("/* script */", () => script.trim().replaceAll("</script", "<\\/script"));
}

// Duktape supports ECMAScript 5. core-js, which src/figures.tsx loads first, adds the newer functions
// that the libraries use.
export function makeFigures() {
  const { text: script, packages } = bundle("src/figures.tsx", {
    target: "es2020",
    platform: "neutral",
    mainFields: ["module", "main"],
  });
  const notice = licenses(packages).replaceAll("*/", "* /");
  return `/*\n${notice}*/\n` + ts.transpileModule(script, {
    compilerOptions: {
      target: ts.ScriptTarget.ES5,
      downlevelIteration: true,
      removeComments: true,
      ignoreDeprecations: "6.0",
    },
  }).outputText;
}

// Compilers limit the length of one literal, and concatenate adjacent literals.
function literal(text) {
  const pieces = [];
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + 8000, text.length);
    // Do not split a surrogate pair.
    if (/[\ud800-\udbff]/.test(text[end - 1])) --end;
    pieces.push(`R"perseus(${text.slice(at, end)})perseus"`);
    at = end;
  }
  return pieces.join("\n");
}

function main(output) {
  const text = `// Made by web/build.mjs.
#include "perseus/planning/report/assets.h"

namespace perseus::report::assets {

using namespace std::string_view_literals;

const std::string_view kReportPage =
${literal(makePage())}sv;

const std::string_view kFigures =
${literal(makeFigures())}sv;

}  // namespace perseus::report::assets
`;
  mkdirSync(dirname(output), { recursive: true });
  writeFileSync(output, text);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.length !== 3) {
    console.error("usage: node build.mjs assets.cc");
    process.exit(2);
  }
  main(process.argv[2]);
}
