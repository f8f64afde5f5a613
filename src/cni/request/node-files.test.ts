import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "bun:test";
import { parseNetConf } from "./net-conf.ts";
import { checkNodenameFile, linkMtu, nodeName } from "./node-files.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "cni-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

const file = (name: string, content?: string): string => {
  const path = join(folder, name);
  if (content !== undefined) writeFileSync(path, content);
  return path;
};
const conf = (config: object) => parseNetConf({ name: "n", ...config });

test("CI-009 the node name is nodename, or the file's content, or hostname, or the kernel's host name", () => {
  const nodename_file = file("nodename", "from-file");
  expect(nodeName(conf({ nodename: "configured", nodename_file, hostname: "old" }))).toBe("configured");
  expect(nodeName(conf({ nodename_file, hostname: "old" }))).toBe("from-file");
  expect(nodeName(conf({ nodename_file: file("absent"), hostname: "old" }))).toBe("old");
  expect(nodeName(conf({ nodename_file: file("absent") }))).toMatch(/^\S+$/);
});

test("CI-009 the nodename file must exist, unless it is optional", () => {
  const nodename_file = file("absent");
  expect(() => checkNodenameFile(conf({ nodename: "n1", nodename_file }))).toThrow(/calico\/node container is running/);
  checkNodenameFile(conf({ nodename_file, nodename_file_optional: true }));
  checkNodenameFile(conf({ nodename_file: file("nodename", "") }));
});

test("CI-011 the configured MTU overrides the file's, and the file's overrides the kernel's", () => {
  const path = file("mtu", " 1450\n");
  expect([linkMtu(conf({ mtu: 9000 }), path), linkMtu(conf({}), path), linkMtu(conf({}), file("none"))]).toEqual([
    9000, 1450, 0,
  ]);
  for (const mtu of [0, 9000]) expect(() => linkMtu(conf({ mtu }), file("garbage", "big"))).toThrow(/is not an MTU/);
});

test("CI-012 a required MTU file must exist, even if the MTU is configured", () =>
  expect(() => linkMtu(conf({ mtu: 1400, require_mtu_file: true }), file("none"))).toThrow(/require_mtu_file/));
