// Supervises two processes until SIGTERM, as calico-node does: `bun supervised-process.ts STATE_FILE`.
import { Supervisor } from "../../../src/node/supervisor/supervisor.ts";
import { createLogger } from "../../../src/lib/log/log.ts";

const file = process.argv[2] ?? "";
const ending = new AbortController();
process.on("SIGTERM", () => ending.abort());
await new Supervisor({
  plans: ["felix", "bird"].map((name) => ({
    name,
    command: ["sleep", "600"],
    env: process.env,
    stopSignal: "SIGKILL",
  })),
  file,
  log: createLogger({ level: "error", write: () => {} }),
  output: () => {},
}).run(ending.signal);
