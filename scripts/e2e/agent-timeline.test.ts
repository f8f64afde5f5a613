import { expect, test } from "bun:test";
import { readChange } from "./agent-timeline.ts";

test("only changes of an agent are recorded", () => {
  const states = new Map<string, string>();
  const lines = [
    "node1   calico-node-a   True     <none>",
    "node1   calico-node-a   True     <none>",
    "node1   calico-node-a   True     2026-01-01T00:00:00Z",
    "node1   calico-node-a   False    2026-01-01T00:00:00Z",
    "node1   calico-node-b   <none>   <none>",
    "node1   calico-node-b   True     <none>",
    "",
  ];
  expect(lines.map((line) => readChange(line, states))).toEqual([
    "node1: calico-node-a is ready",
    undefined,
    "node1: calico-node-a is terminating",
    undefined,
    "node1: calico-node-b is not ready",
    "node1: calico-node-b is ready",
    undefined,
  ]);
});
