import { expect, test } from "bun:test";
import { type DumpedSet, keyTypeId, type NftChange } from "../../kernel/index.ts";
import { NftSets } from "./nft-sets.ts";
import { changesIn } from "./phases.ts";

const TABLE = { family: "ip", name: "calico" } as const;
const NFT_SET_INTERVAL = 4;
const dumped = (name: string, flags = 0): DumpedSet => ({
  ...{ table: TABLE, name, flags, keyType: keyTypeId(["ipv4_addr"]) },
});
const inWords = (changes: readonly NftChange[]): string[] =>
  changes.map((change) => {
    const set = "set" in change ? change.set : "";
    return `${change.op} ${set}${"elements" in change ? ` ${change.elements.length}` : ""}`;
  });
const allChanges = (sets: NftSets): string[] => {
  sets.renameUsers();
  return inWords(changesIn([sets.changes()], ["release", "create", "remove"]));
};
const prefixes = (count: number): string[] =>
  Array.from({ length: count }, (_, i) => `10.${i >> 12}.${(i >> 4) & 255}.${(i & 15) * 16}/28`);

test("a set too large to list is written again unless its content is known", () => {
  const list = () => {
    throw new Error("the elements were listed");
  };
  const sets = new NftSets(4, TABLE, () => {});
  sets.replace("s:large", "net", prefixes(50_000));
  const name = sets.nameOf("s:large");
  const present = [dumped(name, NFT_SET_INTERVAL)];
  // An earlier process may have written other members.
  sets.found(present, list);
  expect(allChanges(sets)).toEqual([`flushSet ${name}`, `addElements ${name} 50000`]);
  sets.committed();
  // No other program has written to nftables.
  sets.found(present, list, { isUntouched: true, trustMs: 1 });
  expect(allChanges(sets)).toEqual([]);
  // Another program has written, probably to another table.
  sets.found(present, list, { trustMs: 180_000 });
  expect(allChanges(sets)).toEqual([]);
  sets.change("s:large", ["192.0.2.0/24"], ["10.0.0.0/28"]);
  sets.found(present, list, { trustMs: 180_000 });
  expect(allChanges(sets)).toEqual([`deleteElements ${name} 1`, `addElements ${name} 1`]);
  sets.committed();
  sets.found(present, list, { trustMs: 1e-6 });
  expect(allChanges(sets)).toEqual([`flushSet ${name}`, `addElements ${name} 50000`]);
  // The set was deleted.
  sets.found([], list, { isUntouched: true });
  expect(allChanges(sets)).toEqual([`addSet ${name}`, `addElements ${name} 50000`]);
});

test("a prefix inside another one is omitted, and added when the other one is removed", () => {
  const sets = new NftSets(4, TABLE, () => {});
  sets.replace("s:x", "net", ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "192.0.2.1/32"]);
  const name = sets.nameOf("s:x");
  expect(allChanges(sets)).toEqual([`addSet ${name}`, `addElements ${name} 2`]);
  sets.committed();
  sets.change("s:x", [], ["10.0.0.0/8"]);
  expect(allChanges(sets)).toEqual([`deleteElements ${name} 1`, `addElements ${name} 1`]);
});
