// Preload for `bun test`: multiplies the number of runs of every property by CALICO_PROPERTY_FACTOR and prints each
// property's seed. See scripts/properties.ts.
import { mock } from "bun:test";
import fc from "fast-check";

const factor = Number(process.env["CALICO_PROPERTY_FACTOR"] ?? 1);
const DEFAULT_RUNS = 100; // of fast-check
const original = { ...fc }; // `fc` itself is the mock below once that is in place

function assert<Ts>(property: fc.IRawProperty<Ts>, parameters: fc.Parameters<Ts> = {}): Promise<void> | void {
  const numRuns = Math.ceil((parameters.numRuns ?? DEFAULT_RUNS) * factor);
  const seed = parameters.seed ?? (Math.random() * 2 ** 32) | 0;
  console.error(`property: seed ${seed}, ${numRuns} runs`);
  return original.assert(property, { ...parameters, seed, numRuns });
}
const scaled = { ...original, assert };
await mock.module("fast-check", () => ({ ...scaled, default: scaled }));
