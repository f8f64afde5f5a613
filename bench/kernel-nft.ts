// Measures replacing one 4-rule chain in tables of 100, 1,000 and 8,000 chains, and sets of 100,000 members. Compares the
// netlink code of calico-ts with libnftables (in process) and with the nft tool (a new process each time), in one run, in a
// network namespace.
import { spawnSync } from "node:child_process";
import { dlopen } from "bun:ffi";
import { interfaceNameBytes, Ipsets, Nft, type NftChange, nftMatch as m } from "../src/kernel/index.ts";
import { addressBytes, type IpAddress } from "../src/lib/ip/ip.ts";
import { median } from "./support/percentile.ts";

if (process.env["CALICO_BENCH_INSIDE"] === undefined) {
  const { status } = spawnSync("unshare", ["--net", process.execPath, import.meta.filename], {
    stdio: "inherit",
    env: { ...process.env, CALICO_BENCH_INSIDE: "1" },
  });
  process.exit(status ?? 1);
}

const table = { family: "ip", name: "bench" } as const;
const nft = new Nft();
const libnftables = openLibnftables();

const rules = (chain: string, port: number): NftChange[] =>
  [port, port + 1, port + 2, port + 3].map((p) => ({
    op: "appendRule",
    table,
    chain,
    rule: {
      expressions: [...m.protocol(6), ...m.ports("destination", [{ first: p, last: p }]), m.counter, m.accept],
      comment: `cali:rule-${p}`,
    },
  }));
const ruleText = (chain: string, port: number): string =>
  [port, port + 1, port + 2, port + 3]
    .map((p) => `add rule ip bench ${chain} tcp dport ${p} counter accept comment "cali:rule-${p}"\n`)
    .join("");

console.log("replace one 4-rule chain, p50 ms                 ours  libnftables     nft tool");
for (const reach of ["alone", "verdict map", "jumps"] as const)
  for (const chains of [100, 1_000, 8_000]) {
    nft.commit([
      { op: "destroyTable", table },
      { op: "addTable", table },
    ]);
    const fill = time(() => nft.commit(build(chains, reach)));
    const ours: number[] = [];
    const library: number[] = [];
    const tool: number[] = [];
    for (let round = 0; round < 15; round++) {
      const chain = `chain-${(round * 37) % chains}`;
      const text = `flush chain ip bench ${chain}\n${ruleText(chain, round + 1)}`;
      for (let i = 0; i < 4; i++)
        ours.push(time(() => nft.commit([{ op: "flushChain", table, chain }, ...rules(chain, round + i)])));
      if (libnftables !== undefined && (chains < 8_000 || round % 3 === 0)) library.push(time(() => libnftables(text)));
      if (chains < 8_000 || round % 5 === 0) tool.push(time(() => spawnSync("nft", ["-f", "-"], { input: text })));
    }
    const label = `  ${chains} chains, ${reach} (built in ${fill.toFixed(0)} ms)`;
    console.log(`${label.padEnd(46)} ${cell(median(ours))} ${cell(median(library), 12)} ${cell(median(tool), 12)}`);
  }

/**
 * Creates chains with four rules each, which a base chain jumps to or not. In each transaction the kernel validates every
 * chain that is reachable from a hook again, so these are slower.
 */
function build(chains: number, reach: "alone" | "verdict map" | "jumps"): NftChange[] {
  const changes: NftChange[] = [
    { op: "addChain", table, chain: "base", base: { type: "filter", hook: "forward", priority: 0, policy: "accept" } },
  ];
  const chain = (i: number) => `chain-${i}`;
  for (let i = 0; i < chains; i++) {
    changes.push({ op: "addChain", table, chain: chain(i) }, ...rules(chain(i), 1));
    if (reach === "jumps")
      changes.push({ op: "appendRule", table, chain: "base", rule: { expressions: [m.jump(chain(i))] } });
  }
  if (reach !== "verdict map") return changes;
  const elements = Array.from({ length: chains }, (_, i) => ({
    key: interfaceNameBytes(`cali${i}`),
    value: { kind: "goto", chain: chain(i) } as const,
  }));
  changes.push(
    { op: "addSet", table, set: "map", type: { key: ["ifname"], value: "verdict" } },
    { op: "addElements", table, set: "map", elements },
    { op: "appendRule", table, chain: "base", rule: { expressions: m.interfaceVerdict("in", "map") } },
  );
  return changes;
}

const members = Array.from({ length: 100_000 }, (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
console.log("100,000 set members, ms                         ours      the tool");
nft.commit([
  { op: "destroyTable", table },
  { op: "addTable", table },
]);
for (const interval of [false, true]) {
  const set = interval ? "nets" : "hosts";
  const add = time(() =>
    nft.commit([
      { op: "addSet", table, set, type: { key: ["ipv4_addr"], interval } },
      {
        op: "addElements",
        table,
        set,
        // Every second address, so that ranges are not adjacent.
        elements: interval
          ? members.flatMap((member) => {
              const key = addressBytes(member as IpAddress);
              key[0] = 10 + ((key[3] ?? 0) & 1);
              return [{ key }, { key: next(key), isEnd: true }];
            })
          : members.map((member) => ({ key: addressBytes(member as IpAddress) })),
      },
    ]),
  );
  const listed = time(() => nft.elements(table, set));
  const one = median(
    Array.from({ length: 30 }, (_, i) =>
      time(() =>
        nft.commit([
          {
            op: "addElements",
            table,
            set,
            elements: interval
              ? [{ key: Uint8Array.of(99, 0, i, 1) }, { key: Uint8Array.of(99, 0, i, 2), isEnd: true }]
              : [{ key: Uint8Array.of(99, 0, 0, i) }],
          },
        ]),
      ),
    ),
  );
  const flags = interval ? "flags interval;" : "";
  const text = `table ip theirs { set ${set} { type ipv4_addr; ${flags} elements = { ${members.join(", ")} }\n }\n }`;
  const theirs = time(() => spawnSync("nft", ["-f", "-"], { input: text }));
  const theirOne = time(() => spawnSync("nft", ["add", "element", "ip", "theirs", set, "{ 99.0.0.1 }"]));
  const theirList = time(() => spawnSync("nft", ["list", "set", "ip", "theirs", set], { maxBuffer: 1 << 28 }));
  row(`  nftables ${interval ? "interval " : ""}set, all at once`, add, theirs);
  row("    one member more", one, theirOne);
  row("    listed", listed, theirList);
}
{
  const ipsets = new Ipsets();
  const set = { name: "bench", type: "hash:net", family: 4, maxElements: 1 << 20 } as const;
  const nets = members.map((member) => `${member}/32`);
  const add = time(() =>
    ipsets.apply([
      { op: "create", set },
      { op: "add", name: "bench", type: "hash:net", members: nets },
    ]),
  );
  const one = median(
    Array.from({ length: 30 }, (_, i) =>
      time(() => ipsets.apply([{ op: "add", name: "bench", type: "hash:net", members: [`99.0.0.${i}/32`] }])),
    ),
  );
  const listed = time(() => ipsets.list("bench"));
  const text = `create theirs hash:net family inet maxelem 1048576\n${nets.map((n) => `add theirs ${n}\n`).join("")}`;
  row(
    "  ipset hash:net, all at once",
    add,
    time(() => spawnSync("ipset", ["restore"], { input: text })),
  );
  row(
    "    one member more",
    one,
    time(() => spawnSync("ipset", ["add", "theirs", "99.0.0.1"])),
  );
  row(
    "    listed",
    listed,
    time(() => spawnSync("ipset", ["list", "theirs"], { maxBuffer: 1 << 28 })),
  );
}

function next(key: Uint8Array): Uint8Array {
  const after = key.slice();
  for (let i = 3; i >= 0; i--) {
    after[i] = ((after[i] ?? 0) + 1) & 255;
    if (after[i] !== 0) break;
  }
  return after;
}

function time(body: () => unknown): number {
  const start = performance.now();
  body();
  return performance.now() - start;
}
function cell(ms: number, width = 9): string {
  return ms.toFixed(2).padStart(width);
}
function row(label: string, ours: number, theirs: number): void {
  console.log(`${label.padEnd(42)} ${cell(ours)} ${cell(theirs, 13)}   ×${(theirs / ours).toFixed(1)}`);
}

/** Loads libnftables, if it is installed. */
function openLibnftables(): ((text: string) => void) | undefined {
  try {
    const { symbols } = dlopen("libnftables.so.1", {
      nft_ctx_new: { args: ["u32"], returns: "ptr" },
      nft_run_cmd_from_buffer: { args: ["ptr", "buffer"], returns: "i32" },
    });
    const context = symbols.nft_ctx_new(0);
    return (text) => {
      if (symbols.nft_run_cmd_from_buffer(context, new TextEncoder().encode(`${text}\0`)) !== 0)
        throw new Error("libnftables rejected the text");
    };
  } catch {
    return undefined;
  }
}
