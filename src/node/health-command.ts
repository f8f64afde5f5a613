// `calico health --port N [--host H] [--type readiness|liveness] [--timeout 5s]`: one question over HTTP, for probes.
import { parseArgs } from "node:util";
import { httpStatus } from "./probes.ts";
import { positiveMs } from "./settings.ts";

const USAGE = "Usage: calico health --port N [--host localhost] [--type readiness|liveness] [--timeout 5s]";

export async function main(argv: readonly string[]): Promise<number> {
  let values: { port?: string; host?: string; type?: string; timeout?: string };
  try {
    const text = { type: "string" } as const;
    values = parseArgs({ args: [...argv], options: { port: text, host: text, type: text, timeout: text } }).values;
  } catch (error) {
    console.error(`calico health: ${error instanceof Error ? error.message : String(error)}\n${USAGE}`);
    return 1;
  }
  const { port = "", host = "localhost", type = "readiness", timeout = "5s" } = values;
  const timeoutMs = positiveMs(timeout);
  if (!/^\d{1,5}$/.test(port) || !["readiness", "liveness"].includes(type) || timeoutMs === undefined) {
    console.error(USAGE);
    return 1;
  }
  const answer = await httpStatus(`http://${host.includes(":") ? `[${host}]` : host}:${port}/${type}`, timeoutMs);
  if (typeof answer === "number" && answer >= 200 && answer < 400) return 0;
  console.error(`calico health: ${typeof answer === "number" ? `HTTP status ${answer}` : answer}`);
  return 1;
}
