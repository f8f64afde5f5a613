import { mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import type { LogRecord } from "../../lib/log/log.ts";
import { LogDestination } from "./destination.ts";
import { createFelixLog, earlySeverity, formatFelixLine, thresholdOf } from "./felix-log.ts";
import { openFelixLog } from "./open.ts";
import { fileWriter } from "./writers.ts";

const counts = { dropped: () => {}, failed: () => {} };

test("FC-006 the early level comes from the environment, in any letter case; the default is ERROR", () => {
  expect(earlySeverity({})).toBe("ERROR");
  expect(earlySeverity({ FELIX_LogSeverityScreen: "info" })).toBe("info");
  expect(earlySeverity({ FELIX_LOGSEVERITYSCREEN: "info", felix_earlylogseverityscreen: "debug" })).toBe("debug");
});

test("FC-007 each destination has its own level; none disables it", () => {
  const lines: Record<string, string[]> = { screen: [], file: [] };
  const writer = (name: string) => ({
    write: (text: string, done: (failed: boolean) => void) => {
      lines[name]!.push(...text.trimEnd().split("\n"));
      done(false);
    },
    writeSync: () => {},
  });
  const { log } = createFelixLog(
    [
      { threshold: thresholdOf("Warning"), writer: writer("screen") },
      { threshold: thresholdOf("DEBUG"), writer: writer("file") },
      { threshold: thresholdOf("none"), writer: writer("nowhere") },
    ],
    { mayDrop: true, counts },
  );
  log.debug("a");
  log.info("b");
  log.warn("c");
  expect(lines["screen"]!.map((line) => line.at(-1))).toEqual(["c"]);
  expect(lines["file"]!.map((line) => line.at(-1))).toEqual(["a", "b", "c"]);
});

test("FC-007 a slow destination drops lines beyond 100 and logs their number", () => {
  const written: string[] = [];
  let finish: ((failed: boolean) => void) | undefined;
  let dropped = 0;
  const destination = new LogDestination(
    {
      write: (text, done) => {
        written.push(text);
        finish = done;
      },
      writeSync: (text) => void written.push(text),
    },
    { mayDrop: true, counts: { dropped: () => dropped++, failed: () => {} } },
  );
  for (let i = 0; i < 150; i++) destination.line(`line ${i}`);
  expect(dropped).toBe(49); // one is being written, 100 are queued
  finish?.(false);
  destination.line("after");
  finish?.(false);
  expect(written.at(-1)).toBe("... dropped 49 logs ...\nafter\n");
});

test("FC-008 a line contains time, level, process ID, part, message and sorted fields", () => {
  const record: LogRecord = {
    time: new Date("2026-03-01T10:00:00.123Z"),
    level: "warn",
    message: "something changed",
    fields: { part: "calc", zeta: 1, alpha: 'a "b"', error: new Error("bad", { cause: new Error("worse") }) },
  };
  expect(formatFelixLine(record, 42)).toBe(
    '2026-03-01 10:00:00.123 [WARNING][42] felix/calc: something changed alpha="a \\"b\\"" error="bad: worse" zeta=1',
  );
});

test("FC-009 debug lines can be limited to some parts", () => {
  const lines: string[] = [];
  const { log } = createFelixLog(
    [{ threshold: "debug", writer: { write: (text, done) => (lines.push(text), done(false)), writeSync: () => {} } }],
    { mayDrop: true, counts, debugParts: /^calc/ },
  );
  log.with({ part: "calc" }).debug("yes");
  log.with({ part: "daemon" }).debug("no");
  log.with({ part: "daemon" }).info("info");
  expect(lines.map((line) => line.trim().split(" ").at(-1))).toEqual(["yes", "info"]);
});

test("FC-007 creates a new file after a rotation, and only logs a missing syslog", async () => {
  const folder = mkdtempSync(join(tmpdir(), "felix-log-"));
  try {
    const path = join(folder, "sub/felix.log");
    const writer = fileWriter(path);
    const line = (text: string) => new Promise((resolve) => writer.write(text, resolve));
    await line("one\n");
    renameSync(path, `${path}.1`);
    await line("two\n");
    expect(readFileSync(`${path}.1`, "utf8")).toBe("one\n");
    expect(readFileSync(path, "utf8")).toBe("two\n");
    const opened = openFelixLog(
      {
        LogFilePath: path,
        LogSeverityFile: "Info",
        LogSeverityScreen: "Fatal",
        LogSeveritySys: "Info",
        LogDebugFilenameRegex: undefined,
        DebugDisableLogDropping: false,
      },
      counts,
      {
        openSystemLog: () => {
          throw new Error("connect to /dev/log: ENOENT");
        },
      },
    );
    opened.flush();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(readFileSync(path, "utf8")).toContain("no syslog");
  } finally {
    rmSync(folder, { recursive: true });
  }
});
