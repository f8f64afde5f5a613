import { expect, test } from "bun:test";
import { runCaptured } from "../lib/command-line/testing/run-captured.ts";
import { NODE } from "./table.ts";

test("the help of calico-node describes each of its parts and probes", async () => {
  for (const word of ["-h", "--help", "-help"]) {
    const { code, out, err } = await runCaptured(NODE, [word]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    const parts = out.slice(out.indexOf("Parts:\n"), out.indexOf("\nOptions of -felix:")).split("\n");
    const described = parts.filter((line) => line.startsWith("  -"));
    expect(described.length).toBeGreaterThan(20);
    for (const line of described) expect(line).toMatch(/^ {2}-[a-z0-9-]+(=<[A-Z]+>)? +\S.{8,}$/);
  }
});

test("an unknown flag is named with the nearest one", async () =>
  expect(await runCaptured(NODE, ["-feliks"])).toEqual({
    code: 2,
    out: "",
    err: 'calico-node: unknown flag -feliks\nDid you mean -felix?\nRun "calico-node --help" for its arguments and flags.\n',
  }));
