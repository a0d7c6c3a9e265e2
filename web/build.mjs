// Makes what the program carries: the report page with its scripts and styles in it, and the
// figures as one script for the engine inside the program. Writes them as C++ text.
//
//   node build.mjs assets.cc
import { readFileSync, writeFileSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import ts from "typescript";

const root = dirname(fileURLToPath(import.meta.url));

function bundle(entry, options) {
  const result = buildSync({
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
  return result.outputFiles[0].text;
}

export function makePage() {
  const script = bundle("src/page/main.tsx", { minify: true, target: "es2020" });
  const style = bundle("src/page/page.css", { minify: true });
  const template = readFileSync(`${root}/src/report.html`, "utf8");
  // A function, since a replacement's text may hold "$&". A script must not end its own element.
  return template
    .replace("/* style */", () => style.trim())
    .replace("/* script */", () => script.trim().replaceAll("</script", "<\\/script"));
}

// Duktape knows ECMAScript 5; core-js, which src/figures.tsx loads first, adds what libraries use.
export function makeFigures() {
  const script = bundle("src/figures.tsx", {
    target: "es2020",
    platform: "neutral",
    mainFields: ["module", "main"],
  });
  return ts.transpileModule(script, {
    compilerOptions: {
      target: ts.ScriptTarget.ES5,
      downlevelIteration: true,
      removeComments: true,
      ignoreDeprecations: "6.0",
    },
  }).outputText;
}

// Compilers limit the length of one literal, and join those that stand side by side.
function literal(text) {
  const pieces = [];
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + 8000, text.length);
    // Not between the two halves of a character.
    if (/[\ud800-\udbff]/.test(text[end - 1])) --end;
    pieces.push(`R"perseus(${text.slice(at, end)})perseus"`);
    at = end;
  }
  return pieces.join("\n");
}

function main(output) {
  const text = `// Made by web/build.mjs.
#include "perseus/report/assets.h"

namespace perseus::assets {

using namespace std::string_view_literals;

const std::string_view kReportPage =
${literal(makePage())}sv;

const std::string_view kFigures =
${literal(makeFigures())}sv;

}  // namespace perseus::assets
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
