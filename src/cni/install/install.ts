// Implements the program `calico-install`: installs the plugin, its credentials and its configuration on the host of this
// container, and updates the credentials. Each step can be repeated; an interrupted step leaves the old file in place.
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, watch } from "node:fs";
import { basename, join } from "node:path";
import type { Logger } from "../../lib/log/log.ts";
import { stderrLogger } from "../../lib/log/stderr-log.ts";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import { DEFAULT_TEMPLATE, renderConfig } from "./install-config.ts";
import { InstallError } from "./install-error.ts";
import { installLink, installProgram, isWritable, writePrivateFile } from "./install-files.ts";
import { apiServerUrl, renderKubeconfig } from "../kubernetes/kubeconfig.ts";
import type { Environment } from "../request/request.ts";

const TLS_FILES = ["etcd-ca", "etcd-cert", "etcd-key"] as const;

export interface InstallPaths {
  /** Mount point of the host's directories. */
  readonly hostRoot: string;
  /** The executable to install. */
  readonly program: string;
  /** Directory of the image's stock plugins. */
  readonly extras: string;
  readonly serviceAccount: string;
}

const DEFAULT_PATHS: InstallPaths = {
  hostRoot: "/host",
  program: "/proc/self/exe",
  extras: "/opt/cni/bin",
  serviceAccount: "/var/run/secrets/kubernetes.io/serviceaccount",
};

export interface InstallOptions {
  readonly env: Environment;
  readonly log: Logger;
  readonly place?: Partial<InstallPaths>;
  /** The plugin's token. By default the pod's own. */
  readonly token?: string;
}

export function installCni(options: InstallOptions): void {
  const { env, log } = options;
  const place = { ...DEFAULT_PATHS, ...options.place };
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
    writePrivateFile(join(netDir, "calico-kubeconfig"), renderKubeconfig(parts));
  }
  writeConfig(env, netDir, { token, tlsFiles });
  log.info("installed the CNI plugin", { directory: netDir });
}

/** Copies the etcd TLS files. Returns the names of those that are now on the host. A running plugin reads old or new files. */
function installTls(env: Environment, netDir: string): string[] {
  const source = tlsSource(env);
  const target = join(netDir, "calico-tls");
  const present = TLS_FILES.filter((file) => existsSync(join(source, file)));
  if (present.length === 0) {
    rmSync(target, { recursive: true, force: true });
    return [];
  }
  mkdirSync(target, { recursive: true, mode: 0o700 });
  chmodSync(target, 0o700);
  for (const name of readdirSync(target))
    if (!present.some((file) => file === name)) rmSync(join(target, name), { recursive: true, force: true });
  copySecrets(source, target);
  return present;
}

const tlsSource = (env: Environment): string => env["TLS_ASSETS_DIR"] || "/calico-secrets";

/** Copies those of the TLS files that exist. Only root may read the copies, regardless of the mode of the sources. */
export function copySecrets(source: string, target: string): void {
  for (const file of TLS_FILES) {
    const text = readFileIfExists(join(source, file));
    if (text !== undefined) writePrivateFile(join(target, file), text);
  }
}

/** Creates the directory only if the host's /etc is mounted; otherwise the files would be written into the container. */
function configDirectory({ hostRoot }: InstallPaths): string {
  const directory = join(hostRoot, "etc/cni/net.d");
  if (existsSync(directory)) return directory;
  if (!existsSync(join(hostRoot, "etc")))
    throw new InstallError(`${directory} does not exist: mount the host's CNI configuration directory`);
  mkdirSync(directory, { recursive: true });
  return directory;
}

const mayUpdate = (env: Environment): boolean => env["UPDATE_CNI_BINARIES"] !== "false";

/** Returns the directories for programs; none if the programs exist and must not be updated. */
function programDirectories(place: InstallPaths, env: Environment): readonly string[] {
  const directories = ["opt/cni/bin", "secondary-bin-dir"].map((name) => join(place.hostRoot, name));
  const writable = directories.filter(isWritable);
  const hasPrograms = (directory: string): boolean =>
    ["calico", "calico-ipam"].every((name) => existsSync(join(directory, name)));
  if (writable.length === 0 && (mayUpdate(env) || !directories.some(hasPrograms)))
    throw new InstallError(`none of ${directories.join(", ")} is writable: mount the host's CNI directory`);
  return writable;
}

function installPrograms(place: InstallPaths, directories: readonly string[], env: Environment, log: Logger): void {
  const skipped = new Set((env["SKIP_CNI_BINARIES"] ?? "").split(",").map((name) => name.trim()));
  for (const directory of directories) {
    const keeps = (path: string): boolean => !mayUpdate(env) && existsSync(path);
    const calico = join(directory, "calico");
    if (!keeps(calico)) log.info("installed program", { path: calico, outcome: installProgram(place.program, calico) });
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
  const ownPrograms = new Set(["install", "calico", "calico-ipam"]);
  return readdirSync(folder).filter((name) => !ownPrograms.has(name) && !name.startsWith("."));
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
  writePrivateFile(join(netDir, name), text);
  if (old !== name) rmSync(join(netDir, old), { force: true });
}

/** @throws InstallError if the name contains a directory */
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
    log.error("could not install the CNI plugin", { error });
    return 1;
  }
  if (env["SLEEP"] === "false") return 0;
  await copySecretsOnChange(env, log);
  return 0;
}

/** Requests a token of the plugin's own account; undefined if the API server does not issue one. */
async function pluginToken(env: Environment, log: Logger): Promise<string | undefined> {
  if (apiServerUrl(env) === undefined) return undefined;
  const { requestToken } = await import("../kubernetes/token-refresh.ts");
  return requestToken(env, log).then(
    (issued) => issued?.token,
    (error: unknown) => {
      log.warn("the API server did not issue a token for the plugin; using the pod's own", { error });
      return undefined;
    },
  );
}

/** Copies the etcd credentials to the host when they change, until SIGTERM. */
function copySecretsOnChange(env: Environment, log: Logger): Promise<void> {
  const source = tlsSource(env);
  return new Promise((resolve) => {
    if (existsSync(source))
      watch(source, () => {
        try {
          copySecrets(source, join(DEFAULT_PATHS.hostRoot, "etc/cni/net.d/calico-tls"));
          log.info("copied changed etcd credentials", { from: source });
        } catch (error) {
          log.warn("could not copy changed etcd credentials", { from: source, error });
        }
      });
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => resolve());
    setInterval(() => {}, 1 << 30); // prevents the process from exiting
  });
}
