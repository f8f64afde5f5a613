import { expect, test } from "bun:test";
import { createLogger } from "../lib/log/log.ts";
import { DatastoreFailure, Unavailable } from "./errors.ts";
import { OutageLog } from "./outage-log.ts";

function start() {
  const lines: string[] = [];
  const write = ({ level, message }: { level: string; message: string }) => void lines.push(`${level}: ${message}`);
  const log = createLogger({ level: "info", write });
  return { lines, outages: new OutageLog({ server: "the datastore", log }) };
}
/** @param silentMs time without an answer when the connection was found to be dead */
const lost = (silentMs: number) => new Unavailable("etcd", "no answer", { silentMs });
const timersRun = () => new Promise((resolve) => setTimeout(resolve, 5));

test("a short interruption of many kinds is not logged, but makes the view older", async () => {
  const { lines, outages } = start();
  expect(outages.viewAgeMs).toBe(0);
  outages.recordFailure("Node", lost(10_000));
  outages.recordFailure("IPPool", lost(12_000));
  await timersRun();
  expect(outages.viewAgeMs).toBeWithin(12_000, 13_000);
  outages.recordSuccess("IPPool");
  expect(outages.viewAgeMs).toBeWithin(10_000, 11_000);
  outages.recordSuccess("Node");
  expect(outages.viewAgeMs).toBe(0);
  expect(lines).toEqual([]);
});

test("after 30 s one line is logged for all kinds, and one when the last of them is up to date", async () => {
  const { lines, outages } = start();
  outages.recordFailure("Node", lost(1000));
  outages.recordFailure("IPPool", lost(30_000));
  await timersRun();
  outages.recordFailure("Node", lost(0));
  outages.recordFailure("IPPool", lost(0));
  await timersRun();
  expect(lines).toEqual(["warn: no answer from the datastore; retrying"]);
  outages.recordSuccess("IPPool");
  expect(lines).toHaveLength(1);
  outages.recordSuccess("Node");
  outages.recordSuccess("Node");
  expect(lines.slice(1)).toEqual(["info: the datastore answers again"]);
});

test("an outage is logged as an error once", async () => {
  const { lines, outages } = start();
  for (let i = 0; i < 3; i++) outages.recordFailure("Node", lost(30_000), true);
  await timersRun();
  expect(lines).toEqual(["error: no answer from the datastore; the view is out of date"]);
});

test("a refusal is logged at once, again when its reason changes, and when it is over", () => {
  const { lines, outages } = start();
  const busy = new Unavailable("api", "status 503", { wasAnswered: true });
  for (const error of [new DatastoreFailure("a"), new DatastoreFailure("a"), busy, busy, new DatastoreFailure("a")])
    outages.recordFailure("Node", error);
  expect(lines).toEqual(Array.from({ length: 3 }, () => "warn: list or watch failed; retrying"));
  outages.recordSuccess("Node");
  expect(lines.slice(3)).toEqual(["info: list and watch succeed again"]);
});

test("no line is logged after the end", async () => {
  const { lines, outages } = start();
  outages.recordFailure("Node", lost(30_000));
  outages[Symbol.dispose]();
  await timersRun();
  expect(lines).toEqual([]);
});
