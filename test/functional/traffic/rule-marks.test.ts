// Tests an upgrade from a version with another format of rule marks: Felix rewrites each rule once, in one transaction, and no
// packet of a connection is lost.
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { faults } from "./traffic.ts";
import { prepare } from "./web-node.ts";

const MARK = /comment "cali:([^;"]*);/g;

test("nftables: rules with marks of an older version are replaced once, without loss", async () => {
  await using world = await prepare();
  const { node, traffic } = world;
  const nft = (...args: readonly string[]) => node.space.run("nft", [...args]);
  const tables = () => ["ip", "ip6"].map((family) => nft("list", "table", family, "calico"));
  const marks = () =>
    tables()
      .flatMap((text) => [...text.matchAll(MARK)].map(([, mark = ""]) => mark))
      .filter((mark) => mark !== "map");
  node.startAgent("nftables");
  await node.untilReady();
  const before = await world.begin();
  await node.endAgent("SIGTERM");
  const wanted = marks();
  expect(wanted.length).toBeGreaterThan(20);

  // The tables of the older version have the same rules with shorter marks; one transaction creates them.
  const older = tables().map((text) =>
    text.replaceAll(MARK, (whole, mark: string) =>
      mark === "map" ? whole : whole.replace(mark, Bun.hash(mark).toString(36)),
    ),
  );
  node.space.run("nft", ["-f", "-"], ["delete table ip calico", "delete table ip6 calico", ...older].join("\n"));
  expect(marks().filter((mark) => wanted.includes(mark))).toEqual([]);

  node.startAgent("nftables");
  await node.untilReady();
  await eventually(() => JSON.stringify(marks()) === JSON.stringify(wanted));
  const { lost, passed, checked } = faults(before, await traffic.finish());
  expect({ lost, passed }).toEqual({ lost: [], passed: [] });
  expect(checked).toBeGreaterThan(0);

  // The next start makes no changes.
  const handles = () => nft("-a", "list", "table", "ip", "calico").match(/# handle \d+/g);
  const written = handles();
  await node.endAgent("SIGTERM");
  node.startAgent("nftables");
  await node.untilReady();
  expect(handles()).toEqual(written);
}, 120_000);
