// Runs attacks in a process: bun worker.ts '{"worker":0,"seed":1,"seconds":60}'. Prints one line of JSON per attack.
import { Lab } from "../../src/lab/lab.ts";
import { randomNumbers } from "../support/random-numbers.ts";
import { API_ATTACKS } from "./api-attacks.ts";
import { type Attack, AttackContext, type Result } from "./context.ts";
import { PACKET_ATTACKS } from "./packet-attacks.ts";
import { LAB } from "./scene.ts";

export const ATTACKS: readonly Attack[] = [...API_ATTACKS, ...PACKET_ATTACKS];

export interface WorkerOptions {
  readonly worker: number;
  readonly seed: number;
  readonly seconds: number;
  /** Only attacks of these names, each once. */
  readonly only?: readonly string[];
}
export interface Attempt extends Result {
  readonly attack: string;
}

if (import.meta.main) {
  const options = JSON.parse(process.argv[2] ?? "{}") as WorkerOptions;
  for await (const attempt of attempts(options)) console.log(JSON.stringify(attempt));
}

async function* attempts({ worker, seed, seconds, only }: WorkerOptions): AsyncGenerator<Attempt> {
  const random = randomNumbers(seed * 31 + worker + 1);
  using context = new AttackContext(Lab.open(LAB), worker, random);
  await context.disturbed(); // stores the state with which later states are compared
  const deadlineMs = performance.now() + seconds * 1_000;
  const wanted = ATTACKS.filter(({ name }) => only?.includes(name) ?? true);
  while (performance.now() < deadlineMs) {
    // Each once per round, so that a short run tries all of them.
    for (const attack of shuffled(wanted, random)) {
      if (performance.now() >= deadlineMs) return;
      try {
        yield { attack: attack.name, ...(await attack.run(context)) };
      } finally {
        context.release();
      }
    }
    if (only !== undefined) return;
  }
}

function shuffled<T>(list: readonly T[], random: (below: number) => number): T[] {
  const rest = [...list];
  return list.flatMap(() => rest.splice(random(rest.length), 1));
}
