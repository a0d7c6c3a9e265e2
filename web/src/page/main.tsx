// The entry of the report page: reads the data in the page and draws it.
import { render } from "preact";
import { parseReport } from "../data";
import { App } from "./app";

const place = document.getElementById("report")!;
try {
  const report = parseReport(document.getElementById("perseus-report")!.textContent!);
  document.title = `Perseus: ${report.job.profile ?? report.job.graph ?? "report"}`;
  place.textContent = "";
  render(<App report={report} />, place);
} catch (error) {
  // An error message is better than an empty page.
  place.className = "broken";
  place.textContent = `This report cannot be shown: ${
    error instanceof Error ? error.message : error
  }. Make it again with perseus report.`;
}
