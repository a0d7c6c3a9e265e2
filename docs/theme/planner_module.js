// Loads the planner that web/estimate/build made, and calls it. Works in a page and in Node.
(function (root) {
  // What the C++ library asks of a system. The planner reads no file and prints nothing.
  const system = (memory) =>
    new Proxy({
      random_get: (at, size) => (new Uint8Array(memory().buffer, at, size).fill(0), 0),
      proc_exit: (status) => { throw new Error(`the planner ended with status ${status}`); },
      // Says which stream it cannot write to, but not why: messages are results here.
      fd_write: () => 8,
    }, { get: (known, name) => known[name] ?? (() => 52) });  // 52: no such function.

  root.loadPerseusPlanner = async (bytes) => {
    let exported;
    const module = await WebAssembly.compile(bytes);
    const imports = { wasi_snapshot_preview1: {} };
    const calls = system(() => exported.memory);
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
      (imports[from] ??= {})[name] = calls[name];
    }
    exported = (await WebAssembly.instantiate(module, imports)).exports;
    exported._initialize?.();

    const give = (text) => {
      const encoded = new TextEncoder().encode(`${text}\0`);
      const at = exported.perseus_text(encoded.length);
      new Uint8Array(exported.memory.buffer, at, encoded.length).set(encoded);
      return at;
    };
    const take = (at) => {
      const bytes = new Uint8Array(exported.memory.buffer);
      return JSON.parse(new TextDecoder().decode(bytes.subarray(at, bytes.indexOf(0, at))));
    };
    return {
      choices: () => take(exported.perseus_choices()),
      // A blocking power below 0 is that of the GPU's model.
      estimate: ({ model, gpu, stages, microbatches, microbatchSize, tensorParallel, blockingPower = -1 }) =>
        take(exported.perseus_estimate(give(model), give(gpu), stages, microbatches, microbatchSize,
          tensorParallel, blockingPower)),
    };
  };
})(globalThis);
