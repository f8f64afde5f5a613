// Runs every command in README and docs, in the order of the page, in a lab. Commands of kubectl use the API server of a
// second lab, if it has been built. Commands that cannot run here are listed in `elsewhere`, with the place where they run.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { programPath } from "../../../src/lab/kubernetes/programs.ts";
import { commandsOf, type ShownCommand } from "./shown-commands.ts";

const root = join(import.meta.dir, "../../..");
const pages = ["README.md", "CONTRIBUTING.md", ...readdirSync(join(root, "docs")).map((file) => `docs/${file}`)]
  .filter((file) => file.endsWith(".md"))
  .sort();
const folder = mkdtempSync(join(tmpdir(), "calico-docs-"));
/** Unique, because another run of the tests may use the same machine. */
const LAB_NAME = `d${process.pid % 10_000}`;
const env = {
  ...process.env,
  CALICO_LAB: LAB_NAME,
  CALICO_LAB_PATIENCE: "4",
  PATH: `${join(root, "dist")}:${process.env["PATH"]}`,
};
const LAB = "calico lab exec node1 -- ";
/** A lab with an API server, but without kubelets. */
const API_LAB = `da${process.pid % 10_000}`;
const isRoot = process.getuid?.() === 0;
const hasApi = (["kube-apiserver", "kubectl"] as const).every((program) => existsSync(programPath(program)));
if (isRoot && !hasApi)
  console.log("kubectl commands of the pages are not run: no kube-apiserver in the cache (make e2e builds it)");

/** Commands that are not run here, and where they are run. */
const elsewhere: readonly (readonly [RegExp, string])[] = [
  [/^make (?!lab$|help$)/, "a separate stage; here only the existence of the target is checked"],
  [/^calico lab up --kubernetes/, "make e2e"],
  [/^kubectl .*rollout status/, "make e2e: no kubelet runs pods here"],
  [/^ctr /, "make e2e: every node imports the image with it"],
  [/^podman (load|push) /, "needs a registry"],
  [/^sed .* manifests\//, "scripts/manifests.test.ts"],
  [/^(mmdebstrap|buildah) /, "by hand: CALICO_IMAGE_ARCHIVE passes the resulting image to test/functional/image"],
  [/^calicoctl node run(?!.*--dryrun)/, "needs systemd: test-vm"],
  [/^calico-node -uninstall/, "rejected while the node runs: test/functional/node/uninstall.test.ts"],
  [/^calicoctl datastore migrate (export|import)/, "needs a second datastore: test/functional/calicoctl"],
];
/** Replacements for the placeholders in the pages. */
const replacements: readonly (readonly [RegExp, string])[] = [
  [/\bNODE\b/g, "node1"],
  [/\bDIR\b/g, join(folder, "yaml")],
  [/ …/g, ""],
  [/shop\/web shop\/db --port 5432/g, "shop/frontend shop/database --port 80"],
  [/\/tmp\/calico\.db/g, join(folder, "calico.db")],
];
/** Expected exit codes other than 0. */
const exitCodes: readonly (readonly [RegExp, readonly number[]])[] = [
  [/^calicoctl explain/, [0, 3]],
  [/^calicoctl (doctor|ipam check)/, [0, 3]],
  [/^calico lab status/, [0, 3]],
  [/^calico lab capture/, [0, 130]], // until it is interrupted
  [/node checksystem/, [0, 1]], // the kernel may lack a module
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
  if (isRoot && hasApi) spawnSync("calico", ["lab", "down", "--name", API_LAB], { env });
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
      run("timeout 60 sh -c 'until calico lab status; do sleep 0.3; done'"); // the previous page may have stopped processes
      if (hasApi && commands.some(({ text }) => KUBECTL.test(text))) {
        const api = `calico lab kubectl --name ${API_LAB} -- get --raw /readyz`;
        run(`${api} || calico lab up --name ${API_LAB} --datastore kubernetes --nodes 1 --pods 0`);
      }
    }, 240_000);
    for (const command of commands)
      test(`line ${command.line}: ${command.text.split("\n")[0]}`, () => check(command), 60_000);
  });
}

/** Creates a lab if the previous commands have removed it. */
function ensureLab(): void {
  if (spawnSync("calico", ["lab", "pod", "list"], { env }).status === 0) return;
  run("calico lab up --datastore etcd && calico lab demo");
}

/** Variables that the page has exported; its later commands run on this machine, not in the lab. */
let exported: Record<string, string> = {};

const KUBECTL = /^(?:calico lab )?kubectl /;

function check({ text }: ShownCommand): void {
  const target = /^make (\S+)$/.exec(text)?.[1];
  if (target !== undefined) expect(spawnSync("make", ["-n", target], { cwd: root }).status).toBe(0);
  if (elsewhere.some(([pattern]) => pattern.test(text))) return;
  if (KUBECTL.test(text)) {
    if (hasApi) runIn(root, text.replace(KUBECTL, `calico lab kubectl --name ${API_LAB} -- `), [0]);
    return;
  }
  const command = replacements
    .reduce((line, [pattern, word]) => line.replaceAll(pattern, word), text)
    .replace(/^dist\//, "");
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
  const want = exitCodes.find(([pattern]) => pattern.test(text))?.[1] ?? [0];
  runIn(target === undefined ? folder : root, `${limit}${isHere ? "" : LAB}${command}`, want);
}

function runIn(cwd: string, command: string, want: readonly number[]): void {
  const result = spawnSync("bash", ["-c", command], {
    env: { ...env, ...exported },
    cwd,
    encoding: "utf8",
    input: "n\n",
  });
  if (!want.includes(result.status ?? -1))
    throw new Error(`${command}: exit ${result.status}, want ${want.join(" or ")}\n${result.stdout}${result.stderr}`);
}
