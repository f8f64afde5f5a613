// Writes src/ipam/gen/go-random-table.ts: the 607 numbers from which the additive lagged Fibonacci generator of Go's
// `math/rand` starts. They are the generator's own state after 7.8e12 steps from seed 1, so they are computed here
// by jumping ahead: one step is x^607 = x^334 + 1 in polynomials with 64-bit coefficients.
//
//   bun scripts/go-random-table.ts
import { writeFileSync } from "node:fs";
import { join } from "node:path";

const LENGTH = 607;
const TAP = 273;
const STEPS = 7_800_000_000_000n;
const WORD = (1n << 64n) - 1n;

/** The minimal standard generator of Park and Miller. */
const parkMiller = (x: number): number => Number((48271n * BigInt(x)) % 2147483647n);

function seeded(seed: number): bigint[] {
  let x = seed;
  const next = () => {
    x = parkMiller(x);
    return BigInt(x);
  };
  for (let i = 0; i < 20; i++) next();
  return Array.from({ length: LENGTH }, () => (next() << 20n) ^ (next() << 10n) ^ next());
}

type Polynomial = bigint[];

function reduce(p: Polynomial): Polynomial {
  for (let i = p.length - 1; i >= LENGTH; i--) {
    const c = p[i] ?? 0n;
    if (c === 0n) continue;
    p[i - LENGTH] = ((p[i - LENGTH] ?? 0n) + c) & WORD;
    p[i - TAP] = ((p[i - TAP] ?? 0n) + c) & WORD;
  }
  return p.slice(0, LENGTH);
}

function multiply(a: Polynomial, b: Polynomial): Polynomial {
  const product = Array<bigint>(2 * LENGTH).fill(0n);
  for (const [i, x] of a.entries()) {
    if (x === 0n) continue;
    for (const [j, y] of b.entries()) product[i + j] = (product[i + j] ?? 0n) + x * y;
  }
  return reduce(product.map((c) => c & WORD));
}

function power(exponent: bigint): Polynomial {
  let result: Polynomial = Array.from({ length: LENGTH }, (_, i) => (i === 0 ? 1n : 0n));
  let base: Polynomial = Array.from({ length: LENGTH }, (_, i) => (i === 1 ? 1n : 0n));
  for (let e = exponent; e > 0n; e >>= 1n) {
    if (e & 1n) result = multiply(result, base);
    base = multiply(base, base);
  }
  return result;
}

// The generator walks its vector downwards: step n writes place (334 - n) mod 607. In the order of writing, the
// sequence is s(n) = s(n - 607) + s(n - 273).
const place = (n: bigint): number => Number((((334n - n) % BigInt(LENGTH)) + BigInt(LENGTH)) % BigInt(LENGTH));
const start = seeded(1);
const sequence = Array.from({ length: LENGTH }, (_, i) => start[place(BigInt(i) + 1n)] ?? 0n);

const table = Array<bigint>(LENGTH).fill(0n);
let jump = power(STEPS);
for (let n = STEPS + 1n - BigInt(LENGTH), i = 0; i < LENGTH; i++, n++) {
  let value = 0n;
  for (const [j, c] of jump.entries()) value += c * (sequence[j] ?? 0n);
  table[place(n)] = value & WORD;
  jump = reduce([0n, ...jump]);
}

const bytes = new DataView(new ArrayBuffer(LENGTH * 8));
for (const [i, value] of table.entries()) bytes.setBigUint64(i * 8, value, true);
const base64 = Buffer.from(bytes.buffer).toString("base64");
const lines = base64.match(/.{1,112}/g) ?? [];
writeFileSync(
  join(import.meta.dir, "../src/ipam/gen/go-random-table.ts"),
  `// Written by scripts/go-random-table.ts: 607 little-endian 64-bit numbers.\nexport const GO_RANDOM_TABLE =
${lines.map((line) => `  "${line}"`).join(" +\n")};
`,
);
