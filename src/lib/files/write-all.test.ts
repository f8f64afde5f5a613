import { expect, test } from "bun:test";
import { join } from "node:path";

const script = `import { writeAll } from ${JSON.stringify(join(import.meta.dir, "write-all.ts"))};
for (let i = 0; i < 3; i++) writeAll(1, "x".repeat(100_000) + "\\n");
writeAll(2, "went on\\n");`;

test("a closed pipe does not end the program, and a slow reader gets everything", () => {
  const command = `"$0" -e "$1" | `;
  const run = (reader: string) => Bun.spawnSync(["bash", "-c", command + reader, process.execPath, script]);
  const gone = run("true");
  expect(gone.stderr.toString()).toBe("went on\n");
  const slow = run("(sleep 0.2; wc -c)");
  expect(slow.stdout.toString().trim()).toBe("300003");
});
