import { mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, spyOn, test } from "bun:test";
import * as fs from "node:fs";
import { openLog } from "./log.ts";
import { parseNetConf } from "./request/net-conf.ts";

function withFolder(body: (folder: string) => void): void {
  const folder = mkdtempSync(join(tmpdir(), "cni-log-"));
  const quiet = spyOn(fs, "writeSync").mockImplementation(() => 0);
  try {
    body(folder);
  } finally {
    quiet.mockRestore();
    rmSync(folder, { recursive: true });
  }
}
const settings = (config: object) => parseNetConf({ name: "n", ...config }).log;
const now = () => new Date("2026-03-04T05:06:07.089Z");

test("CI-010 the log level applies to the file; an unknown level means info", () =>
  withFolder((folder) => {
    for (const [level, lines] of [
      ["debug", 3],
      ["info", 2],
      ["error", 1],
      ["loud", 2],
    ] as const) {
      const path = join(folder, "deeper", `${level}.log`);
      {
        using log = openLog(settings({ log_level: level, log_file_path: path }), now);
        log.logger.debug("a");
        log.logger.info("b");
        log.logger.error("c", { pod: "p" });
      }
      expect(readFileSync(path, "utf8").trim().split("\n")).toHaveLength(lines);
    }
  }));

test("CI-010 a full file is rotated; files that are too old or too many are deleted", () =>
  withFolder((folder) => {
    const path = join(folder, "cni.log");
    writeFileSync(path, "x".repeat(1024 * 1024));
    for (const day of ["01", "02", "03"]) writeFileSync(join(folder, `cni-2026-03-${day}T00-00-00.000.log`), "old");
    const ancient = join(folder, "cni-2026-03-03T00-00-00.000.log");
    utimesSync(ancient, new Date("2025-01-01"), new Date("2025-01-01"));
    for (const name of ["01", "02"]) utimesSync(join(folder, `cni-2026-03-${name}T00-00-00.000.log`), now(), now());
    {
      using log = openLog(settings({ log_file_path: path, log_file_max_size: 1, log_file_max_count: 3 }), now);
      log.logger.info("fresh");
    }
    expect(readFileSync(path, "utf8")).toContain("fresh");
    expect(readdirSync(folder).sort()).toEqual([
      "cni-2026-03-02T00-00-00.000.log",
      "cni-2026-03-04T05-06-07.089.log",
      "cni.log",
    ]);
  }));

test("CI-010 a log file that cannot be written is not an error", () =>
  withFolder((folder) => {
    writeFileSync(join(folder, "file"), "");
    using log = openLog(settings({ log_file_path: join(folder, "file", "cni.log") }), now);
    log.logger.info("lost");
  }));
