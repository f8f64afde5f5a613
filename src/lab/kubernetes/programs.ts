// Builds the programs of a real Kubernetes cluster from Go modules at fixed versions. Each is built once into a cache outside
// the repository; cached programs are not downloaded again.
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import type { Terminal } from "../terminal.ts";
import { COREDNS_SOURCE } from "./coredns-source.ts";
import { PAUSE_SOURCE } from "./pause-source.ts";

interface Module {
  readonly name: string;
  readonly version: string;
  /** Version of the modules that it requires at v0.0.0, which are part of the same repository. */
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

const COREDNS: Module = { name: "github.com/coredns/coredns", version: "v1.14.7" };
const MODULES = [KUBERNETES, CONTAINERD, COREDNS];

interface Source {
  readonly module: Module;
  /** The program's package in the module. */
  readonly path?: string;
  /** Source of a main package that replaces the module's own. */
  readonly main?: string;
  /** The program is a compiled test. */
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
  coredns: { module: COREDNS, main: COREDNS_SOURCE },
} as const satisfies Readonly<Record<string, Source>>;

export type ProgramName = keyof typeof SOURCES;
/** All programs except the conformance tests. */
export const CLUSTER_PROGRAMS = (Object.keys(SOURCES) as ProgramName[]).filter((name) => name !== "e2e.test");

const MINIMUM_GO = 26;

export class ProgramsMissing extends Error {
  override readonly name = "ProgramsMissing";
}

export const cacheFolder = (): string => join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "calico-ts");

/** Path of a program after it has been built. */
export function programPath(name: ProgramName): string {
  const { module } = SOURCES[name];
  return join(moduleFolder(module), name);
}

export const pausePath = (): string => join(cacheFolder(), "pause-1", "pause");

const moduleFolder = (module: Module): string =>
  join(cacheFolder(), `${basename(module.name.replace(/\/v\d+$/, ""))}-${module.version}`);

/** Builds the programs that are not in the cache. Each is a step of its own, so that the output names what is being built. */
export async function obtainPrograms(names: readonly ProgramName[], terminal: Terminal): Promise<void> {
  if (names.includes("containerd") && !existsSync(pausePath())) await terminal.step("build pause", obtainPause);
  const missing = names.filter((name) => !existsSync(programPath(name)));
  if (missing.length === 0) return;
  const go = await findGo();
  for (const module of MODULES) {
    const programs = missing.filter((name) => SOURCES[name].module === module);
    if (programs.length > 0) await buildModule(go, module, programs, terminal);
  }
}

/** Returns the path of one program, building it if necessary. */
export async function findOrBuild(name: ProgramName, terminal: Terminal): Promise<string> {
  const onPath = Bun.which(name);
  if (onPath !== null) return onPath;
  await obtainPrograms([name], terminal);
  return programPath(name);
}

async function findGo(): Promise<string> {
  const go = Bun.which("go");
  if (go === null) throw new ProgramsMissing(`building Kubernetes requires Go 1.${MINIMUM_GO}, which is not installed`);
  const { stdout } = await execute(go, ["version"], {});
  const minor = Number(/go1\.(\d+)/.exec(stdout)?.[1] ?? 0);
  if (minor < MINIMUM_GO)
    throw new ProgramsMissing(`building Kubernetes requires Go 1.${MINIMUM_GO}, found 1.${minor}`);
  return go;
}

async function buildModule(
  go: string,
  module: Module,
  names: readonly ProgramName[],
  terminal: Terminal,
): Promise<void> {
  await inBuildFolder(moduleFolder(module), async (folder, target) => {
    const run = (...args: string[]) => execute(go, args, { cwd: folder });
    await terminal.step(`download ${module.name} ${module.version}`, async () => {
      await run("mod", "init", "build");
      await run("mod", "edit", `-require=${module.name}@${module.version}`);
      const { stdout } = await run("mod", "download", "-json", `${module.name}@${module.version}`);
      const { GoMod } = JSON.parse(stdout) as { readonly GoMod: string };
      if (module.staging !== undefined)
        for (const name of stagedModules(readFileSync(GoMod, "utf8")))
          await run("mod", "edit", `-replace=${name}=${name}@${module.staging}`);
    });
    const flags = ["-trimpath", `-ldflags=-s -w ${(module.settings ?? []).map((s) => `-X ${s}`).join(" ")}`];
    if (module.tags !== undefined) flags.push(`-tags=${module.tags}`);
    for (const [i, name] of names.entries()) {
      const { path, main, isTest }: Source = SOURCES[name];
      if (main !== undefined) writeFileSync(join(folder, "main.go"), main);
      // Without -vet=off the vetting alone takes half an hour.
      const build = isTest === true ? ["test", "-c", "-vet=off"] : ["build"];
      const file = join(folder, name);
      await terminal.step(`build ${name} ${module.version} (${i + 1} of ${names.length}, only once)`, () =>
        run(...build, ...flags, "-o", file, path === undefined ? "." : `${module.name}/${path}`),
      );
      renameSync(file, join(target, name));
    }
  });
}

/** Modules that a go.mod requires at exactly v0.0.0 are part of the requiring module's repository. */
export function stagedModules(goMod: string): string[] {
  return [...new Set([...goMod.matchAll(/\b(k8s\.io\/[a-z0-9-]+) v0\.0\.0$/gm)].flatMap((match) => match[1] ?? []))];
}

/** Builds `pause` unless it exists; takes a few seconds. */
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

/** Runs `work` in a temporary folder inside `target`. */
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
