import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { findInvalidCommands, findInvalidResources } from "./examples.ts";
import { consoleCommands, pageCommands, syntaxError } from "./page-commands.ts";
import { documentPaths } from "./site.ts";

const root = join(import.meta.dir, "../..");
const targets = new Set(
  [...readFileSync(join(root, "Makefile"), "utf8").matchAll(/^([a-z][a-z0-9-]*):/gm)].map(([, name = ""]) => name),
);

for (const path of documentPaths(root)) {
  const page = readFileSync(join(root, path), "utf8");
  if (!/^```(?:sh|console|yaml)$/m.test(page)) continue;
  test(`${path}: resources are valid, and commands exist`, async () => {
    expect(await findInvalidResources(page)).toEqual([]);
    expect(await findInvalidCommands(page, targets)).toEqual([]);
    const commands = [...pageCommands(page), ...consoleCommands(page)];
    expect(commands.filter(({ text }) => !text.includes("<<") && syntaxError(text) !== undefined)).toEqual([]);
  });
}

const PAGE = `
\`\`\`yaml
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.10.0.1/16, ipipMode: Sometimes}
\`\`\`
\`\`\`sh
calicoctl explain a b --port 80    # denied
calicoctl explain a b --ports 80
cat > x <<END
text
END
dist/calico lab up --nodes 2 && calicoctl nothing
\`\`\`
\`\`\`console
# calicoctl gett nodes
output of a command
# make nothing
# kubectl get pods
\`\`\`
`;

test("reports invalid resources and commands", async () => {
  expect(await findInvalidResources(PAGE)).toEqual([expect.stringMatching(/^line 2: IPPool spec\.ipipMode: /)]);
  const faults = await findInvalidCommands(PAGE, new Set(["lab"]));
  expect(faults.map((fault) => fault.replace(/: .*/, ""))).toEqual(["line 10", "line 17", "line 19"]);
});

test("finds the commands of a page, with their lines and exit codes", () => {
  expect(pageCommands(PAGE).map(({ line, exitCode, text }) => [line, exitCode, text.split("\n").length])).toEqual([
    [9, 3, 1],
    [10, 0, 1],
    [11, 0, 3],
    [14, 0, 1],
  ]);
  expect(consoleCommands(PAGE).map(({ line }) => line)).toEqual([17, 19, 20]);
});
