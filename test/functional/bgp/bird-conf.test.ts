// Compares BIRD's configuration for each scenario with the file in conf/, and checks it with BIRD. UPDATE=1 rewrites conf/;
// review the differences before you commit them.
import { afterAll, expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { birdConfiguration } from "../../../src/bgp/index.ts";
import { planScenario, SCENARIOS } from "./scenarios.ts";

const golden = join(import.meta.dir, "conf");
const folder = mkdtempSync(join(tmpdir(), "calico-bird-conf-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

for (const [name, scenario] of Object.entries(SCENARIOS))
  for (const family of [4, 6] as const) {
    const file = join(golden, `${name}.${family === 4 ? "bird" : "bird6"}.cfg`);
    test(`NB-123 ${name} IPv${family}`, () => {
      const text = birdConfiguration(planScenario(scenario), family, { password: (secret) => `password-of-${secret}` });
      if (process.env["UPDATE"] === "1") {
        mkdirSync(dirname(file), { recursive: true });
        writeFileSync(file, text);
      }
      expect(existsSync(file)).toBe(true);
      expect(text).toBe(readFileSync(file, "utf8"));
      const trial = join(folder, "bird.cfg");
      writeFileSync(trial, text);
      execFileSync("bird", ["-p", "-c", trial], { stdio: "pipe" });
    });
  }

test("conf/ contains no other files", () => {
  const known = new Set(Object.keys(SCENARIOS).flatMap((name) => [`${name}.bird.cfg`, `${name}.bird6.cfg`]));
  const found = readdirSync(golden, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".cfg"));
  expect(found.filter((name) => !known.has(name))).toEqual([]);
});
