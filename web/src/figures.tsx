// Draws figures for papers: the charts of the page as SVG text, in an engine without a browser. The
// program calls figure(name, data, width) with the data of a report, and receives the SVG.
import "core-js/es/map";
import "core-js/es/set";
import "core-js/es/symbol";
import "core-js/es/promise";
import "core-js/es/array/from";
import "core-js/es/array/includes";
import "core-js/es/array/fill";
import "core-js/es/array/find";
import "core-js/es/array/flat-map";
import "core-js/es/object/assign";
import "core-js/es/object/entries";
import "core-js/es/math/hypot";
import "core-js/es/math/log10";
import "core-js/es/number/is-finite";
import { renderToString } from "preact-render-to-string";
import { drawFigure } from "./draw_figure";
import { parseReport } from "./data";

(globalThis as unknown as { figure: unknown }).figure = (name: string, data: string, widthMm: number): string =>
  renderToString(drawFigure(name, parseReport(data), widthMm));
