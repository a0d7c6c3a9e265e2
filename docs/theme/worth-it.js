// The form of the page "Is it worth it for me?". theme/planner.js has the planner, compressed, so that the
// page works as a file, which may not load other files.
(async () => {
  const form = document.getElementById("worth-it");
  const answer = document.getElementById("worth-it-answer");
  const commands = document.getElementById("worth-it-commands");
  const say = (text) => { answer.textContent = text; };
  if (!globalThis.perseusPlannerGzip) {
    say("This copy of the site was made without the planner (scripts/docs makes one with it).");
    return;
  }
  let planner;
  try {
    const packed = Uint8Array.from(atob(perseusPlannerGzip), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    planner = await loadPerseusPlanner(await new Response(stream).arrayBuffer());
  } catch (error) {
    say(`The planner cannot run in this browser: ${error.message}`);
    return;
  }
  const choices = planner.choices();
  const offer = (name, items, chosen) => {
    for (const { name: value, title } of items) {
      form.elements[name].add(new Option(title ?? value.toUpperCase(), value, false, value === chosen));
    }
  };
  offer("model", choices.models, "llama3-8b");
  offer("gpu", choices.gpus, "a100-sxm");

  const read = () => {
    const job = {};
    for (const { name, type, value, valueAsNumber } of form.elements) {
      job[name] = type === "number" ? valueAsNumber : value;
    }
    return job;
  };
  const row = (title, value) => {
    const line = document.createElement("tr");
    line.append(Object.assign(document.createElement("th"), { textContent: title, scope: "row" }),
      Object.assign(document.createElement("td"), { textContent: value }));
    return line;
  };
  const show = (job, found) => {
    const saving = 1 - found.energy_j / found.baseline_energy_j;
    const bound = 1 - found.lower_bound_j / found.baseline_energy_j;
    const iterations = (730 * 3600) / found.time_s;
    const saved = ((found.baseline_energy_j - found.energy_j) * iterations * job.pipelines) / 3.6e6;
    const percent = (part) => `${(100 * part).toFixed(2)} %`;
    const table = document.createElement("table");
    table.append(
      row("Energy saved, with no slowdown", percent(saving)),
      row("No plan can save more than", percent(bound)),
      row("Time of an iteration", `${found.time_s.toFixed(3)} s`),
      row("Energy of an iteration, one pipeline",
        `${(found.energy_j / 1e3).toFixed(2)} kJ, not ${(found.baseline_energy_j / 1e3).toFixed(2)} kJ`),
      row("Saved in a month, whole job",
        `${(saved / 1e3).toFixed(2)} MWh, $${Math.round(saved * job.price).toLocaleString("en-US")}`));
    answer.replaceChildren(table);
  };
  const update = () => {
    if (!form.checkValidity()) {
      say("A number is missing or out of range.");
      return;
    }
    const job = read();
    const blocking = choices.gpus.find((gpu) => gpu.name === job.gpu).blocking_power_w;
    commands.textContent =
      `perseus synth --model ${job.model} --gpu ${job.gpu} --stages ${job.stages} \\\n` +
      `    --microbatch-size ${job.microbatchSize} --tensor-parallel ${job.tensorParallel} -o profile.csv\n` +
      `perseus plan profile.csv --schedule 1f1b --microbatches ${job.microbatches} \\\n` +
      `    --blocking-power ${blocking} --gpus-per-stage ${job.tensorParallel} --per-instruction -o out`;
    try {
      const found = planner.estimate(job);
      if (found.error) say(`This cannot be planned: ${found.error}`);
      else show(job, found);
    } catch (error) {
      say(`The planner failed: ${error.message}. Reload the page, and choose a smaller job.`);
    }
  };
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
})();
