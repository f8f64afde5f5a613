// The programs of a real Kubernetes cluster. They are Go modules at fixed versions, built once each into a cache outside
// the repository; what is there is used as it is. Nothing is fetched when all of them are.
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import type { Terminal } from "../terminal.ts";
import { PAUSE_SOURCE } from "./pause-source.ts";

interface Module {
  readonly name: string;
  readonly version: string;
  /** The version of the modules it names at v0.0.0, which its own repository holds. */
  readonly staging?: string;
  readonly tags?: string;
  readonly settings?: readonly string[];
}

const KUBERNETES: Module = {
  name: "k8s.io/kubernetes",
  version: "v1.36.3",
  staging: "v0.36.3",
  settings: [
    "k8s.io/component-base/version.gitVersion=v1.36.3",
    "k8s.io/component-base/version.gitMajor=1",
    "k8s.io/component-base/version.gitMinor=36",
  ],
};
const CONTAINERD: Module = {
  name: "github.com/containerd/containerd/v2",
  version: "v2.3.7",
  tags: "no_btrfs no_devmapper no_zfs no_aufs",
  settings: ["github.com/containerd/containerd/v2/version.Version=v2.3.7"],
};

interface Source {
  readonly module: Module;
  readonly path: string;
  /** A test compiled to a program of its own. */
  readonly isTest?: true;
}

const SOURCES = {
  "kube-apiserver": { module: KUBERNETES, path: "cmd/kube-apiserver" },
  "kube-controller-manager": { module: KUBERNETES, path: "cmd/kube-controller-manager" },
  "kube-scheduler": { module: KUBERNETES, path: "cmd/kube-scheduler" },
  "kube-proxy": { module: KUBERNETES, path: "cmd/kube-proxy" },
  kubelet: { module: KUBERNETES, path: "cmd/kubelet" },
  kubectl: { module: KUBERNETES, path: "cmd/kubectl" },
  agnhost: { module: KUBERNETES, path: "test/images/agnhost" },
  "e2e.test": { module: KUBERNETES, path: "test/e2e", isTest: true },
  containerd: { module: CONTAINERD, path: "cmd/containerd" },
  ctr: { module: CONTAINERD, path: "cmd/ctr" },
  "containerd-shim-runc-v2": { module: CONTAINERD, path: "cmd/containerd-shim-runc-v2" },
} as const satisfies Readonly<Record<string, Source>>;

export type ProgramName = keyof typeof SOURCES;
/** What a cluster runs; the conformance suite is asked for apart. */
export const CLUSTER_PROGRAMS = (Object.keys(SOURCES) as ProgramName[]).filter((name) => name !== "e2e.test");

const MINIMUM_GO = 26;

export class ProgramsMissing extends Error {
  override readonly name = "ProgramsMissing";
}

export const cacheFolder = (): string => join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "calico-ts");

/** Where a program lies once it is built. */
export function programPath(name: ProgramName): string {
  const { module } = SOURCES[name];
  return join(moduleFolder(module), name);
}

export const pausePath = (): string => join(cacheFolder(), "pause-1", "pause");

const moduleFolder = (module: Module): string =>
  join(cacheFolder(), `${basename(module.name.replace(/\/v\d+$/, ""))}-${module.version}`);

/** Builds those that are not in the cache, all programs of one module in one go. */
export async function obtainPrograms(names: readonly ProgramName[], terminal: Terminal): Promise<void> {
  const missing = names.filter((name) => !existsSync(programPath(name)));
  if (names.includes("containerd")) await obtainPause();
  if (missing.length === 0) return;
  const go = await findGo();
  for (const module of [KUBERNETES, CONTAINERD]) {
    const wanted = missing.filter((name) => SOURCES[name].module === module);
    if (wanted.length > 0)
      await terminal.step(`${wanted.join(", ")} ${module.version}, built once (takes minutes)`, () =>
        buildModule(go, module, wanted),
      );
  }
}

/** Where it is, or why it cannot be had: one program for a test that needs no more. */
export async function findOrBuild(name: ProgramName, terminal: Terminal): Promise<string> {
  const onPath = Bun.which(name);
  if (onPath !== null) return onPath;
  await obtainPrograms([name], terminal);
  return programPath(name);
}

async function findGo(): Promise<string> {
  const go = Bun.which("go");
  if (go === null)
    throw new ProgramsMissing(`Kubernetes' programs are built with Go 1.${MINIMUM_GO}, which is not here`);
  const { stdout } = await execute(go, ["version"], {});
  const minor = Number(/go1\.(\d+)/.exec(stdout)?.[1] ?? 0);
  if (minor < MINIMUM_GO)
    throw new ProgramsMissing(`Kubernetes' programs are built with Go 1.${MINIMUM_GO}, here is 1.${minor}`);
  return go;
}

async function buildModule(go: string, module: Module, names: readonly ProgramName[]): Promise<void> {
  await inBuildFolder(moduleFolder(module), async (folder, target) => {
    const run = (...args: string[]) => execute(go, args, { cwd: folder });
    await run("mod", "init", "build");
    await run("mod", "edit", `-require=${module.name}@${module.version}`);
    const { stdout } = await run("mod", "download", "-json", `${module.name}@${module.version}`);
    const { GoMod } = JSON.parse(stdout) as { readonly GoMod: string };
    if (module.staging !== undefined)
      for (const name of stagedModules(readFileSync(GoMod, "utf8")))
        await run("mod", "edit", `-replace=${name}=${name}@${module.staging}`);
    const flags = ["-trimpath", `-ldflags=-s -w ${(module.settings ?? []).map((s) => `-X ${s}`).join(" ")}`];
    if (module.tags !== undefined) flags.push(`-tags=${module.tags}`);
    const sources = names.map((name): Source & { name: string } => ({ ...SOURCES[name], name }));
    const out = join(folder, "out/");
    mkdirSync(out);
    const plain = sources.filter(({ isTest }) => isTest !== true);
    // A trailing slash: a folder, however many programs there are.
    if (plain.length > 0) await run("build", ...flags, "-o", out, ...plain.map(({ path }) => `${module.name}/${path}`));
    // Without -vet=off the vetting alone takes half an hour.
    for (const { name, path } of sources.filter(({ isTest }) => isTest === true))
      await run("test", "-c", "-vet=off", ...flags, "-o", join(out, name), `${module.name}/${path}`);
    for (const name of names) renameSync(join(out, name), join(target, name));
  });
}

/** Modules a go.mod requires at exactly v0.0.0: they live in the requiring module's own repository. */
export function stagedModules(goMod: string): string[] {
  return [...new Set([...goMod.matchAll(/\b(k8s\.io\/[a-z0-9-]+) v0\.0\.0$/gm)].flatMap((match) => match[1] ?? []))];
}

/** Builds the first process of nodes and pods, unless it is there; a matter of seconds. */
export async function obtainPause(): Promise<void> {
  const path = pausePath();
  if (existsSync(path)) return;
  const go = await findGo();
  await inBuildFolder(join(path, ".."), async (folder) => {
    writeFileSync(join(folder, "main.go"), PAUSE_SOURCE);
    await execute(go, ["mod", "init", "pause"], { cwd: folder });
    await execute(go, ["build", "-trimpath", "-ldflags=-s -w", "-o", "pause", "."], { cwd: folder });
    renameSync(join(folder, "pause"), path);
  });
}

/** Work that leaves nothing behind but what it moved to the target. */
async function inBuildFolder(target: string, work: (folder: string, target: string) => Promise<void>): Promise<void> {
  mkdirSync(target, { recursive: true });
  const folder = mkdtempSync(join(target, "build-"));
  try {
    await work(folder, target);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function execute(file: string, args: readonly string[], options: { readonly cwd?: string }) {
  return promisify(execFile)(file, [...args], {
    ...options,
    env: { ...process.env, CGO_ENABLED: "0", GOFLAGS: "-mod=mod -buildvcs=false" },
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
}
