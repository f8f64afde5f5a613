// Runs one target in a child process. Reads its options as JSON from standard input, and prints findings and counts as lines
// of JSON.
import { readFileSync, writeSync } from "node:fs";
import { Executor } from "./executor.ts";
import { InFlightWriter } from "./in-flight.ts";
import { Random } from "./random.ts";
import { loadTarget } from "./targets/index.ts";

export interface ChildOrders {
  readonly target: string;
  readonly seconds: number;
  readonly seed: number;
  readonly inFlightFile: string;
  /** Paths of inputs, in the order in which they are replayed. */
  readonly corpus: readonly string[];
}

export type ChildReport =
  | { readonly type: "finding"; readonly kind: string; readonly what: string; readonly input: string }
  | { readonly type: "done"; readonly executions: number; readonly accepted: number; readonly seconds: number };

const orders = JSON.parse(readFileSync(0, "utf8")) as ChildOrders;
const target = await loadTarget(orders.target);

const inFlight = new InFlightWriter(orders.inFlightFile);
const executor = new Executor({
  target,
  corpus: orders.corpus.map((path) => new Uint8Array(readFileSync(path))),
  random: new Random(orders.seed),
  begin: (input) => inFlight.begin(input),
  end: (executions, accepted) => inFlight.end(executions, accepted),
  onFinding: ({ kind, what, input }) =>
    report({ type: "finding", kind, what, input: Buffer.from(input).toString("base64") }),
});
process.on("uncaughtException", (error) => executor.recordUncaught(error));
process.on("unhandledRejection", (error) => executor.recordUncaught(error));

const started = performance.now();
await executor.replay();
// The clock is read before every input: it costs less than a microsecond.
await executor.fuzz(() => performance.now() - started >= orders.seconds * 1000);
const seconds = (performance.now() - started) / 1000;
report({ type: "done", executions: executor.executions, accepted: executor.accepted, seconds });
process.exit(0);

function report(message: ChildReport): void {
  writeSync(1, `${JSON.stringify(message)}\n`);
}
