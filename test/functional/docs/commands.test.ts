// Every command that README and docs show is run here, in the order of the page, in a lab of its own: the first page that
// lies to a newcomer is a failing test. Lines that cannot run here stand in `elsewhere`, each with where it is run.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { commandsOf, type ShownCommand } from "./shown-commands.ts";

const root = join(import.meta.dir, "../../..");
const pages = ["README.md", "CONTRIBUTING.md", ...readdirSync(join(root, "docs")).map((file) => `docs/${file}`)]
  .filter((file) => file.endsWith(".md"))
  .sort();
const folder = mkdtempSync(join(tmpdir(), "calico-docs-"));
const env = {
  ...process.env,
  CALICO_LAB: "docs",
  CALICO_LAB_PATIENCE: "4",
  PATH: `${join(root, "dist")}:${process.env["PATH"]}`,
};
const LAB = "calico lab exec node1 -- ";
const isRoot = process.getuid?.() === 0;

/** Where a line is run when not here. */
const elsewhere: readonly (readonly [RegExp, string])[] = [
  [/^make (?!lab$|help$)/, "a stage of its own; here only: the target exists"],
  [/^kubectl |^calico lab (up --kubernetes|kubectl)/, "make e2e"],
  [/^ctr /, "every node of make e2e imports the image so"],
  [/^(mmdebstrap|buildah) /, "by hand: CALICO_IMAGE_ARCHIVE gives what they make to test/functional/image"],
  [/^calicoctl node run(?!.*--dryrun)/, "needs systemd: test-vm"],
  [/^calicoctl datastore migrate (export|import)/, "needs a second datastore: test/functional/calicoctl"],
];
/** Placeholders of the pages, as a reader would fill them in. */
const filled: readonly (readonly [RegExp, string])[] = [
  [/\bNODE\b/g, "node1"],
  [/\bDIR\b/g, join(folder, "yaml")],
  [/ …/g, ""],
  [/shop\/web shop\/db --port 5432/g, "shop/frontend shop/database --port 80"],
  [/\/tmp\/calico\.db/g, join(folder, "calico.db")],
];
/** Codes other than 0 that are right here. */
const codes: readonly (readonly [RegExp, readonly number[]])[] = [
  [/^calicoctl explain/, [0, 3]],
  [/^calicoctl (doctor|ipam check)/, [0, 3]],
  [/^calico lab status/, [0, 3]],
  [/^calico lab capture/, [0, 130]], // until it is interrupted
  [/node checksystem/, [0, 1]], // a kernel may lack something
];

beforeAll(() => {
  if (!isRoot) return;
  mkdirSync(join(folder, "yaml"));
  const resources = run(`${LAB}calicoctl get nodes -o yaml`, { make: true });
  writeFileSync(join(folder, "yaml/nodes.yaml"), resources);
  writeFileSync(join(folder, "policy.yaml"), POLICY);
}, 180_000);
afterAll(() => {
  if (isRoot) spawnSync("calico", ["lab", "down"], { env });
  rmSync(folder, { recursive: true, force: true });
}, 60_000);

const POLICY = `apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: web, namespace: team}
spec: {selector: app == 'web', types: [Ingress], ingress: [{action: Allow, protocol: TCP, destination: {ports: [80]}}]}
`;

function run(command: string, options: { readonly make?: boolean } = {}): string {
  if (options.make === true) {
    const made = spawnSync("make", ["lab"], { env, cwd: root, encoding: "utf8" });
    if (made.status !== 0) throw new Error(`make lab: ${made.stdout}${made.stderr}`);
  }
  const result = spawnSync("bash", ["-c", command], { env, cwd: folder, encoding: "utf8" });
  if (result.status !== 0) throw new Error(`${command}: ${result.stdout}${result.stderr}`);
  return result.stdout;
}

for (const page of pages) {
  const commands = commandsOf(readFileSync(join(root, page), "utf8"), (word) => Bun.which(word) !== null);
  if (commands.length === 0) continue;
  describe.skipIf(!isRoot)(page, () => {
    beforeAll(() => {
      exported = {};
      ensureLab();
      run("timeout 60 sh -c 'until calico lab status; do sleep 0.3; done'"); // the page before may have killed things
    }, 120_000);
    for (const command of commands)
      test(`line ${command.line}: ${command.text.split("\n")[0]}`, () => check(command), 60_000);
  });
}

/** A page may take the lab down; the next command finds another. */
function ensureLab(): void {
  if (spawnSync("calico", ["lab", "pod", "list"], { env }).status === 0) return;
  run("calico lab up --datastore etcd && calico lab demo");
}

/** What the page has exported so far: its commands then work on this machine, not in the lab. */
let exported: Record<string, string> = {};

function check({ text }: ShownCommand): void {
  const target = /^make (\S+)$/.exec(text)?.[1];
  if (target !== undefined) expect(spawnSync("make", ["-n", target], { cwd: root }).status).toBe(0);
  if (elsewhere.some(([pattern]) => pattern.test(text))) return;
  const command = filled.reduce((line, [pattern, word]) => line.replaceAll(pattern, word), text).replace(/^dist\//, "");
  const setting = /^export (\w+)=(.*)$/.exec(command);
  if (setting?.[1] !== undefined) {
    exported = { ...exported, [setting[1]]: setting[2] ?? "" };
    return;
  }
  const isHere =
    /^(calico lab|make) /.test(command) ||
    (command.startsWith("calicoctl ") && "CALICO_SQLITE_PATH" in exported && !/ (node|doctor)\b/.test(command));
  if (command === "calico lab up") run("calico lab down");
  else ensureLab();
  const limit = text.startsWith("calico lab capture") ? "timeout --preserve-status -s INT 2 " : "";
  const result = spawnSync("bash", ["-c", `${limit}${isHere ? "" : LAB}${command}`], {
    env: { ...env, ...exported },
    cwd: target === undefined ? folder : root,
    encoding: "utf8",
    input: "n\n",
  });
  const want = codes.find(([pattern]) => pattern.test(text))?.[1] ?? [0];
  const isRight = want.includes(result.status ?? -1);
  if (!isRight)
    throw new Error(`${command}: exit ${result.status}, want ${want.join(" or ")}\n${result.stdout}${result.stderr}`);
}
