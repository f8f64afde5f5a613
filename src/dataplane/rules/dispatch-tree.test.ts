import { expect, test } from "bun:test";
import { dispatchTree } from "./dispatch-tree.ts";
import type { DispatchChain } from "./rule.ts";
import { chainText, plainConfig } from "./testing.ts";

const CLOSED = '-m comment --comment "Unknown interface" --jump DROP';
const config = plainConfig();
function tree(names: readonly string[], more: Partial<DispatchChain> = {}): Record<string, string[]> {
  const dispatch: DispatchChain = {
    kind: "dispatch",
    name: "cali-from-wl-dispatch",
    direction: "in",
    targets: new Map(names.map((name) => [name, `cali-fw-${name}`])),
    otherwise: [{ action: { kind: "drop" }, comments: ["Unknown interface"] }],
    ...more,
  };
  return Object.fromEntries(
    dispatchTree(dispatch).map((chain) => [
      chain.name.replace("cali-from-wl-dispatch", "root"),
      chainText(chain, "filter", config),
    ]),
  );
}
const leaf = (name: string) => `--in-interface ${name} --goto cali-fw-${name}`;

test("FD-075 without workloads, packets of all interfaces with a workload prefix are dropped", () =>
  expect(tree([])).toEqual({ root: [CLOSED] }));

test("FD-075 the root and every branch end in a drop", () =>
  expect(tree(["calib2", "calia1", "calib1", "calic"])).toEqual({
    "root-b": [leaf("calib1"), leaf("calib2"), CLOSED],
    root: [leaf("calia1"), "--in-interface calib+ --goto cali-from-wl-dispatch-b", leaf("calic"), CLOSED],
  }));

test("FD-075 one workload needs no branch, and a name that is a prefix of another is distinguished from it", () => {
  expect(tree(["cali1"])).toEqual({ root: [leaf("cali1"), CLOSED] });
  expect(tree(["cali1", "cali12", "cali13"])).toEqual({
    root: [leaf("cali1"), leaf("cali12"), leaf("cali13"), CLOSED],
  });
});

test("FD-075 packets do not return from a branch, so no packet passes the rules of two endpoints", () => {
  const names = Array.from({ length: 300 }, (_, i) => `cali${(i * 7919).toString(16)}`);
  const chains = tree(names);
  for (const rules of Object.values(chains)) {
    expect(rules.at(-1)).toBe(CLOSED);
    for (const rule of rules.slice(0, -1)) expect(rule).toContain("--goto ");
  }
  // Each name's way through the tree, as the kernel would go it.
  const matches = (rule: string, name: string) => {
    const pattern = /--in-interface (\S+)/.exec(rule)?.[1] ?? "+";
    return pattern.endsWith("+") ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
  };
  const end = (name: string): string => {
    for (let at = "root"; ; ) {
      const rule = chains[at]?.find((each) => matches(each, name)) ?? "";
      const next = /--goto (\S+)/.exec(rule)?.[1];
      if (next === undefined || !next.startsWith("cali-from-wl-dispatch")) return next ?? "closed";
      at = next.replace("cali-from-wl-dispatch", "root");
    }
  };
  for (const name of names) expect(end(name)).toBe(`cali-fw-${name}`);
  for (const stranger of ["cali", "calix", `${names[5]}x`, "cali0000"]) expect(end(stranger)).toBe("closed");
});
