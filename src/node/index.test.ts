import { expect, spyOn, test } from "bun:test";
import { main } from "./index.ts";

test("asked for help, calico-node says what each of its parts is", async () => {
  using said = spyOn(console, "log").mockImplementation(() => {});
  for (const word of ["-h", "--help"]) expect(await main([word])).toBe(0);
  const lines = String(said.mock.calls[0]?.[0]).split("\n");
  const parts = lines.slice(
    2,
    lines.findIndex((line) => line.includes("PROBE")),
  );
  expect(parts.length).toBeGreaterThan(10);
  for (const part of parts) expect(part).toMatch(/^ {2}-[a-z-]+ +\S.{8,}$/);
});

test("a word that means nothing is named, and the exit code says so", async () => {
  using said = spyOn(console, "error").mockImplementation(() => {});
  expect(await main(["-feliks"])).toBe(1);
  expect(said.mock.calls[0]?.[0]).toBe("calico-node: -feliks means nothing here");
});
