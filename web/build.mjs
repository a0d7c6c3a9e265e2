// Makes what the program carries: the report page with its scripts and styles in it, and the
// figures as one script for the engine inside the program. Writes them as C++ text.
//
//   node build.mjs assets.cc
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import ts from "typescript";

const root = dirname(fileURLToPath(import.meta.url));

/** The bundled text, and the packages that are in it. */
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

/** Their notices, which have to go where the code goes. */
function licences(packages) {
  return [...packages].sort().map((name) => {
    const folder = `${root}/node_modules/${name}`;
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
    const text = file ? readFileSync(`${folder}/${file}`, "utf8").trim() : `Licence: ${license}`;
    return `${name} ${version}\n\n${text}\n`;
  }).join("\n");
}

export function makePage() {
  const { text: script, packages } = bundle("src/page/main.tsx", { minify: true, target: "es2020" });
  const { text: style } = bundle("src/page/page.css", { minify: true });
  const template = readFileSync(`${root}/src/report.html`, "utf8");
  // A function, since a replacement's text may hold "$&". A script must not end its own element.
  return template
    .replace("/* licences */", () => licences(packages).replaceAll("</", "<\\/"))
    .replace("/* style */", () => style.trim())
    .replace("/* script */", () => script.trim().replaceAll("</script", "<\\/script"));
}

// Duktape knows ECMAScript 5; core-js, which src/figures.tsx loads first, adds what libraries use.
export function makeFigures() {
  const { text: script, packages } = bundle("src/figures.tsx", {
    target: "es2020",
    platform: "neutral",
    mainFields: ["module", "main"],
  });
  const notice = licences(packages).replaceAll("*/", "* /");
  return `/*\n${notice}*/\n` + ts.transpileModule(script, {
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
