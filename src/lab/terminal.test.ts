import { afterAll, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "../lib/testing/eventually.ts";
import { openTerminal } from "./terminal.ts";

const folder = mkdtempSync(join(tmpdir(), "lab-terminal-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("without a terminal, a step that lasts prints lines with its name and elapsed time before it ends", async () => {
  const file = join(folder, "output");
  const fd = openSync(file, "w");
  const output = () => readFileSync(file, "utf8");
  try {
    const terminal = openTerminal({ fd, progressMs: 5 });
    await terminal.step("kubelet v1.36.3", () => eventually(() => output().split("\n").length > 2));
    const lines = output().trimEnd().split("\n");
    for (const line of lines.slice(0, -1)) expect(line).toMatch(/^ {2}… kubelet v1\.36\.3, \d+ s$/);
    expect(lines.at(-1)).toMatch(/^ {2}✓ kubelet v1\.36\.3 \d+\.\d\d s$/);
    const { length } = output();
    await terminal.step("quick", () => {});
    expect(output().slice(length)).toMatch(/^ {2}✓ quick \d+\.\d\d s\n$/);
  } finally {
    closeSync(fd);
  }
});

test("a step that fails prints no progress afterwards", async () => {
  const file = join(folder, "failed");
  const fd = openSync(file, "w");
  try {
    const terminal = openTerminal({ fd, progressMs: 1 });
    const failure = terminal.step("broken", () => Promise.reject(new Error("no")));
    await expect(failure).rejects.toThrow("no");
    await terminal.step("next", () => eventually(() => readFileSync(file, "utf8").includes("… next")));
    expect(readFileSync(file, "utf8")).toMatch(/✗ broken\n(?!.*broken)/s);
  } finally {
    closeSync(fd);
  }
});

/** Returns the output of a step and a coloured word on a real terminal. */
function onTerminal(environment: Readonly<Record<string, string>>): string {
  const program = `
    const { openTerminal, paint } = await import(${JSON.stringify(join(import.meta.dir, "terminal.ts"))});
    const terminal = openTerminal();
    await terminal.step("work", () => {});
    terminal.line(paint(terminal.colour, "green", "word"));`;
  const command = `'${process.execPath}' -e '${program}'`;
  const { NO_COLOR: _, ...inherited } = process.env;
  const { stdout, status } = spawnSync("script", ["-qec", command, "/dev/null"], {
    encoding: "utf8",
    env: { ...inherited, ...environment },
  });
  expect({ status, stdout }).toMatchObject({ status: 0 });
  return stdout;
}

test("a terminal gets colours, unless NO_COLOR or TERM=dumb is set; a dumb one also gets no control sequences", () => {
  expect(onTerminal({ TERM: "xterm" })).toContain("\x1b[32mword\x1b[0m");
  expect(onTerminal({ TERM: "xterm", NO_COLOR: "1" })).toContain("\nword");
  const dumb = onTerminal({ TERM: "dumb" });
  expect(dumb).not.toContain("\x1b");
  expect(dumb.replaceAll("\r\n", "\n")).toMatch(/^ {2}✓ work \d+\.\d\d s\nword\n$/);
});
