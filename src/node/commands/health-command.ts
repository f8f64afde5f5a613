// Implements `calico health`: sends one HTTP request to a program's health endpoint.
import type { Call } from "../../lib/command-line/command.ts";
import { UsageError } from "../../lib/command-line/usage-error.ts";
import { positiveMs } from "../settings.ts";
import type { healthGrammar } from "../table.ts";
import { httpStatus } from "./probes.ts";

export async function run({ flags, io }: Call<typeof healthGrammar>): Promise<number> {
  const { host, port, type, timeout } = flags;
  const timeoutMs = positiveMs(timeout);
  if (timeoutMs === undefined) throw new UsageError(`--timeout ${timeout}: want a duration such as 5s`);
  const response = await httpStatus(`http://${host.includes(":") ? `[${host}]` : host}:${port}/${type}`, timeoutMs);
  if (typeof response === "number" && response >= 200 && response < 400) return 0;
  io.err(`calico health: ${typeof response === "number" ? `HTTP status ${response}` : response}\n`);
  return 1;
}
