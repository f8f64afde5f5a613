// Compares the kernel state of each named state, as operators see it, with the files in expected/<state>/. After an intended
// change, `make expected` writes them again; commit the difference with the change.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type Backend, DataplaneHost, inSync } from "./host.ts";
import { NAMED_STATES, type NamedState } from "./expected-states.ts";

const ROOT = join(import.meta.dir, "expected");
const isUpdate = process.env["CALICO_UPDATE_EXPECTED"] === "1";

const lines = (text: string, keep: (line: string) => boolean = () => true): string =>
  text
    .split("\n")
    .map((line) => line.trimEnd())
    .filter((line) => line !== "" && keep(line))
    .join("\n") + "\n";

/** Removes counters and comments of the tool, and sorts chains by name; the order of rules is kept. */
function iptables(saved: string): string {
  const tables = saved.split(/^(?=\*)/m).filter((part) => part.startsWith("*"));
  return tables
    .map((part) => {
      const all = part.split("\n").filter((line) => line !== "" && !line.startsWith("#") && line !== "COMMIT");
      const chains = all.filter((line) => line.startsWith(":")).map((line) => line.replace(/ \[\d+:\d+\]$/, ""));
      const rules = all.filter((line) => line.startsWith("-A"));
      const body = chains
        .sort()
        .flatMap((chain) => [
          chain,
          ...rules.filter((each) => each.split(" ")[1] === chain.slice(1).split(" ")[0]).map((each) => each.trimEnd()),
        ]);
      return [all[0], ...body, "COMMIT"].join("\n");
    })
    .sort()
    .join("\n")
    .concat("\n");
}

/** False for link-local addresses, which the kernel generates for each device. */
const isStable = (line: string) => !/fe80:/.test(line);

function ipset(saved: string): string {
  return lines(
    saved
      .split("\n")
      .map((line) => line.replace(/ (hashsize|bucketsize|initval) \S+/g, ""))
      .sort()
      .join("\n"),
    isStable,
  );
}

/** Sorts the parts of each table by kind and name, and the members of sets by their text, one per line. */
function ruleset(listed: string): string {
  const sorted = listed.replace(/elements = \{([^}]*)\}/g, (_, body: string) => {
    const members = body
      .split(",")
      .map((member) => member.trim())
      .filter((member) => member !== "" && isStable(member))
      .sort();
    return `elements = { ${members.join(",\n\t\t\t     ")} }`;
  });
  return sorted
    .split(/^}\n/m)
    .filter((table) => table !== "")
    .map((table) => {
      const [head = "", ...parts] = table.split(/\n(?=\t(?:set|map|chain|flowtable) )/);
      const order = (part: string) => (part.startsWith("\tchain") ? 1 : 0);
      const bodies = parts.map((part) => part.trimEnd()).sort((x, y) => order(x) - order(y) || (x < y ? -1 : 1));
      return [head, ...bodies].join("\n").concat("\n}\n");
    })
    .sort()
    .join("");
}

/** Other versions of the tools print the same rules in other formats. */
const versions = ["nft", "iptables", "ipset"]
  .map((tool) => execFileSync(tool, ["--version"], { encoding: "utf8" }).split("\n")[0] ?? "")
  .join("\n")
  .concat("\n");

type Files = ReadonlyMap<string, string>;

async function see(state: NamedState, backend: Backend): Promise<Files> {
  await using host = await DataplaneHost.create(backend, { NFTablesMode: "Auto", ...state.settings });
  const messages = state.messages(host);
  host.start(state.settings, backend, state.facts);
  await host.send(...messages, inSync);
  const run = (command: string, ...args: string[]) => host.namespace.run(command, args);
  if (state.facts?.vxlanEnabled === true) {
    await eventually(() => run("ip", "-br", "link").includes("vxlan.calico"), 10_000);
    await eventually(() => run("ip", "route").includes("dev vxlan.calico onlink"), 10_000);
    await eventually(
      () => run("nft", "list", "ruleset").includes("10.65.1.0") || run("ipset", "save").includes("10.65.1.0"),
      10_000,
    );
  }
  const collect = (): Files => {
    const routes = lines(run("ip", "-4", "route"), (line) => !line.includes("proto kernel")).concat(
      lines(run("ip", "-6", "route"), (line) => !line.includes("proto kernel")),
    );
    const files = new Map([["ip-route", routes]]);
    if (backend === "nftables") files.set("nft-ruleset", ruleset(run("nft", "-s", "list", "ruleset")));
    else {
      files.set("iptables-save", iptables(run(`iptables-${backend}-save`)));
      files.set("ip6tables-save", iptables(run(`ip6tables-${backend}-save`)));
      files.set("ipset-save", ipset(run("ipset", "save")));
    }
    return files;
  };
  // Addresses of the host arrive as events after the messages, so the first look may be too early.
  const isExpected = (): boolean =>
    collect()
      .entries()
      .every(([name, text]) => readIfExists(join(ROOT, state.name, name)) === text);
  if (!isUpdate) await eventually(isExpected, 10_000).catch(() => {}); // the caller shows the difference
  return collect();
}

const readIfExists = (path: string): string | undefined => (existsSync(path) ? readFileSync(path, "utf8") : undefined);

if (isUpdate) {
  rmSync(ROOT, { recursive: true, force: true });
  mkdirSync(ROOT, { recursive: true });
  writeFileSync(join(ROOT, "tools"), versions);
}
const isComparable = existsSync(join(ROOT, "tools")) && readFileSync(join(ROOT, "tools"), "utf8") === versions;
if (!isComparable) console.log("expected: written with other versions of nft, iptables or ipset; not compared");

for (const state of NAMED_STATES)
  test.skipIf(!isComparable)(
    `${state.name}: the kernel holds what the files say, with nftables and with both iptables`,
    async () => {
      const folder = join(ROOT, state.name);
      for (const backend of ["nftables", "legacy", "nft"] as const) {
        const files = await see(state, backend);
        for (const [name, text] of files) {
          const path = join(folder, name);
          if (isUpdate && backend !== "nft" && !existsSync(path)) {
            mkdirSync(folder, { recursive: true });
            writeFileSync(path, text);
          }
          expect(existsSync(path) ? text : `${path} is missing; make expected writes it`).toBe(
            readFileSync(path, "utf8"),
          );
        }
      }
    },
    120_000,
  );
