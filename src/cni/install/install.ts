// The role `calico-install`: puts the plugin, its credentials and its configuration on the host this container runs on, and
// keeps the credentials fresh. Each step can be repeated; a step that was cut short leaves the old file in place.
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, watch } from "node:fs";
import { basename, join } from "node:path";
import type { Logger } from "../../lib/log/log.ts";
import { stderrLogger } from "../../lib/log/stderr-log.ts";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import { DEFAULT_TEMPLATE, renderConfig } from "./install-config.ts";
import { InstallError } from "./install-error.ts";
import { installLink, installProgram, isWritable, writePrivately } from "./install-files.ts";
import { apiServerUrl, renderKubeconfig } from "../kubernetes/kubeconfig.ts";
import type { Environment } from "../request/request.ts";

const TLS_FILES = ["etcd-ca", "etcd-cert", "etcd-key"] as const;

export interface InstallPlace {
  /** Where the host's file system is mounted. */
  readonly hostRoot: string;
  /** Our own executable. */
  readonly program: string;
  /** Stock plugins that came in the image. */
  readonly extras: string;
  readonly serviceAccount: string;
}

const PLACE: InstallPlace = {
  hostRoot: "/host",
  program: "/proc/self/exe",
  extras: "/opt/cni/bin",
  serviceAccount: "/var/run/secrets/kubernetes.io/serviceaccount",
};

export interface InstallOptions {
  readonly env: Environment;
  readonly log: Logger;
  readonly place?: Partial<InstallPlace>;
  /** A token for the plugin; the pod's own when absent. */
  readonly token?: string;
}

export function installCni(options: InstallOptions): void {
  const { env, log } = options;
  const place = { ...PLACE, ...options.place };
  const directories = programDirectories(place, env);
  const netDir = configDirectory(place);
  const tlsFiles = installTls(env, netDir);
  installPrograms(place, directories, env, log);
  const token = options.token ?? readFileIfExists(join(place.serviceAccount, "token"))?.trim() ?? "";
  const server = apiServerUrl(env);
  if (server !== undefined && token !== "") {
    const ca = readFileIfExists(join(place.serviceAccount, "ca.crt"));
    const skipTlsVerify = env["SKIP_TLS_VERIFY"] === "true";
    if (ca === undefined && !skipTlsVerify)
      throw new InstallError(`${join(place.serviceAccount, "ca.crt")} is missing and SKIP_TLS_VERIFY is not true`);
    const parts = { server, skipTlsVerify, token, ca };
    writePrivately(join(netDir, "calico-kubeconfig"), renderKubeconfig(parts));
  }
  writeConfig(env, netDir, { token, tlsFiles });
  log.info("The CNI plugin is installed", { directory: netDir });
}

/** Which of the three etcd files are now on the host. A plugin that runs meanwhile finds the old ones or the new. */
function installTls(env: Environment, netDir: string): string[] {
  const source = tlsSource(env);
  const target = join(netDir, "calico-tls");
  const there = TLS_FILES.filter((file) => existsSync(join(source, file)));
  if (there.length === 0) {
    rmSync(target, { recursive: true, force: true });
    return [];
  }
  mkdirSync(target, { recursive: true, mode: 0o700 });
  chmodSync(target, 0o700);
  for (const name of readdirSync(target))
    if (!there.some((file) => file === name)) rmSync(join(target, name), { recursive: true, force: true });
  copySecrets(source, target);
  return there;
}

const tlsSource = (env: Environment): string => env["TLS_ASSETS_DIR"] || "/calico-secrets";

/** What there is of the three; whatever mode they have where they come from, root alone reads the copies. */
export function copySecrets(source: string, target: string): void {
  for (const file of TLS_FILES) {
    const text = readFileIfExists(join(source, file));
    if (text !== undefined) writePrivately(join(target, file), text);
  }
}

/** Made only where the host is: without its folders all would go to the container's own, and nobody would notice. */
function configDirectory({ hostRoot }: InstallPlace): string {
  const directory = join(hostRoot, "etc/cni/net.d");
  if (existsSync(directory)) return directory;
  if (!existsSync(join(hostRoot, "etc")))
    throw new InstallError(`${directory} is not there: mount the host's CNI configuration directory`);
  mkdirSync(directory, { recursive: true });
  return directory;
}

const mayUpdate = (env: Environment): boolean => env["UPDATE_CNI_BINARIES"] !== "false";

/** Where programs go; none when they are there and shall stay. */
function programDirectories(place: InstallPlace, env: Environment): readonly string[] {
  const directories = ["opt/cni/bin", "secondary-bin-dir"].map((name) => join(place.hostRoot, name));
  const writable = directories.filter(isWritable);
  const isThere = (directory: string): boolean =>
    ["calico", "calico-ipam"].every((name) => existsSync(join(directory, name)));
  if (writable.length === 0 && (mayUpdate(env) || !directories.some(isThere)))
    throw new InstallError(`none of ${directories.join(", ")} can be written: mount the host's CNI directory`);
  return writable;
}

function installPrograms(place: InstallPlace, directories: readonly string[], env: Environment, log: Logger): void {
  const skipped = new Set((env["SKIP_CNI_BINARIES"] ?? "").split(",").map((name) => name.trim()));
  for (const directory of directories) {
    const keeps = (path: string): boolean => !mayUpdate(env) && existsSync(path);
    const calico = join(directory, "calico");
    if (!keeps(calico)) log.info("Program", { path: calico, outcome: installProgram(place.program, calico) });
    if (!keeps(join(directory, "calico-ipam"))) installLink(calico, join(directory, "calico-ipam"));
    for (const name of extraPrograms(place.extras)) {
      const target = join(directory, name);
      if (skipped.has(name) || keeps(target)) continue;
      installProgram(join(place.extras, name), target);
    }
  }
}

function extraPrograms(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const ours = new Set(["install", "calico", "calico-ipam"]);
  return readdirSync(folder).filter((name) => !ours.has(name) && !name.startsWith("."));
}

function writeConfig(
  env: Environment,
  netDir: string,
  { token, tlsFiles }: { readonly token: string; readonly tlsFiles: readonly string[] },
): void {
  const hostNetDir = env["CNI_NET_DIR"] || "/etc/cni/net.d";
  const file = env["CNI_NETWORK_CONFIG_FILE"];
  let template = env["CNI_NETWORK_CONFIG"] || DEFAULT_TEMPLATE;
  if (file) {
    const read = readFileIfExists(file);
    if (read === undefined) throw new InstallError(`CNI_NETWORK_CONFIG_FILE ${file} cannot be read`);
    template = read;
  }
  const text = renderConfig(template, env, {
    kubeconfig: `${hostNetDir}/calico-kubeconfig`,
    serviceAccountToken: token,
    tlsDirectory: `${hostNetDir}/calico-tls`,
    tlsFiles,
  });
  const name = fileName("CNI_CONF_NAME", env["CNI_CONF_NAME"] || "10-calico.conflist");
  const old = fileName("CNI_OLD_CONF_NAME", env["CNI_OLD_CONF_NAME"] || "10-calico.conflist");
  writePrivately(join(netDir, name), text);
  if (old !== name) rmSync(join(netDir, old), { force: true });
}

/** A name stays in its folder. */
function fileName(variable: string, name: string): string {
  if (name !== basename(name) || name === "." || name === "..")
    throw new InstallError(`${variable}=${JSON.stringify(name)}: want a file name without folders`);
  return name;
}

export async function run(): Promise<number> {
  const { env } = process;
  const log = stderrLogger("info");
  try {
    const token = await pluginToken(env, log);
    installCni({ env, log, token });
  } catch (error) {
    log.error("Installing the CNI plugin failed", { error });
    return 1;
  }
  if (env["SLEEP"] === "false") return 0;
  await keepSecretsFresh(env, log);
  return 0;
}

/** A token of the plugin's own account, when the API server gives one. */
async function pluginToken(env: Environment, log: Logger): Promise<string | undefined> {
  if (apiServerUrl(env) === undefined) return undefined;
  const { requestToken } = await import("../kubernetes/token-refresh.ts");
  return requestToken(env, log).then(
    (issued) => issued?.token,
    (error: unknown) => {
      log.warn("The API server gave no token for the plugin; using the pod's own", { error });
      return undefined;
    },
  );
}

/** Until SIGTERM: new etcd credentials reach the host when they change. */
function keepSecretsFresh(env: Environment, log: Logger): Promise<void> {
  const source = tlsSource(env);
  return new Promise((resolve) => {
    if (existsSync(source))
      watch(source, () => {
        try {
          copySecrets(source, join(PLACE.hostRoot, "etc/cni/net.d/calico-tls"));
          log.info("Copied the etcd credentials that changed", { from: source });
        } catch (error) {
          log.warn("The etcd credentials that changed could not be copied", { from: source, error });
        }
      });
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => resolve());
    setInterval(() => {}, 1 << 30); // nothing else keeps the process
  });
}
