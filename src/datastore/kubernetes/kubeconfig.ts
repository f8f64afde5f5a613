// Reads kubeconfig files: merges several as kubectl does (the first file that sets a value wins), selects one context, and
// returns its server, certificates and source of credentials.
// https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { load } from "js-yaml";
import { InvalidConfig } from "../errors.ts";

export interface ExecPlugin {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly apiVersion: string;
  /** Pass the cluster's server and CA to the plugin. */
  readonly provideClusterInfo: boolean;
}

export interface KubeconfigContext {
  readonly server: string;
  readonly ca?: string;
  readonly tlsServerName?: string;
  readonly insecureSkipTlsVerify: boolean;
  readonly cert?: string;
  readonly key?: string;
  /** Set instead of `cert` and `key` if they are in files, which may be renewed. */
  readonly certFile?: string;
  readonly keyFile?: string;
  readonly token?: string;
  readonly tokenFile?: string;
  readonly basic?: { readonly username: string; readonly password: string };
  readonly exec?: ExecPlugin;
}

interface Named<T> {
  readonly name: string;
  readonly value: T;
  /** Relative file names are resolved against this directory. */
  readonly folder: string;
}
type Fields = Readonly<Record<string, unknown>>;

/** @param paths colon-separated list, as in $KUBECONFIG; missing files are skipped if there are several */
export function readKubeconfig(paths: string, currentContext?: string): KubeconfigContext {
  const files = paths.split(":").filter((path) => path !== "");
  const documents = files.flatMap((path) => {
    try {
      return [{ text: readFileSync(path, "utf8"), folder: dirname(resolve(path)), name: path }];
    } catch (error) {
      if (files.length > 1 && (error as NodeJS.ErrnoException).code === "ENOENT") return [];
      throw new InvalidConfig(`kubeconfig ${path}: ${(error as Error).message}`, { cause: error });
    }
  });
  return pickContext(documents, currentContext);
}

export function parseKubeconfig(text: string, currentContext?: string): KubeconfigContext {
  return pickContext([{ text, folder: ".", name: "inline kubeconfig" }], currentContext);
}

function pickContext(
  documents: readonly { readonly text: string; readonly folder: string; readonly name: string }[],
  wanted: string | undefined,
): KubeconfigContext {
  const clusters: Named<Fields>[] = [];
  const users: Named<Fields>[] = [];
  const contexts: Named<Fields>[] = [];
  let current = wanted;
  for (const { text, folder, name } of documents) {
    const root = fieldsOf(parseYaml(text, name), name);
    if (typeof root["current-context"] === "string" && root["current-context"] !== "")
      current ??= root["current-context"];
    collect(clusters, root["clusters"], "cluster", folder);
    collect(users, root["users"], "user", folder);
    collect(contexts, root["contexts"], "context", folder);
  }
  const context = contexts.find(({ name }) => name === current) ?? (current === undefined ? contexts[0] : undefined);
  if (context === undefined)
    throw new InvalidConfig(
      current === undefined ? "kubeconfig has no context" : `kubeconfig has no context ${JSON.stringify(current)}`,
    );
  const cluster = clusters.find(({ name }) => name === context.value["cluster"]);
  if (cluster === undefined) throw new InvalidConfig(`kubeconfig context ${context.name}: cluster not found`);
  const user = users.find(({ name }) => name === context.value["user"]);
  const server = text(cluster.value, "server");
  if (server === undefined) throw new InvalidConfig(`kubeconfig cluster ${cluster.name} has no server`);
  return {
    server,
    ca: pem(cluster, "certificate-authority"),
    tlsServerName: text(cluster.value, "tls-server-name"),
    insecureSkipTlsVerify: cluster.value["insecure-skip-tls-verify"] === true,
    ...(user === undefined ? {} : credentials(user)),
  };
}

function credentials(user: Named<Fields>): Partial<KubeconfigContext> {
  const username = text(user.value, "username");
  const password = text(user.value, "password");
  const tokenFile = text(user.value, "tokenFile");
  const exec = user.value["exec"];
  return {
    cert: inlinePem(user, "client-certificate"),
    key: inlinePem(user, "client-key"),
    certFile: pemFile(user, "client-certificate"),
    keyFile: pemFile(user, "client-key"),
    token: text(user.value, "token"),
    tokenFile: tokenFile === undefined ? undefined : resolve(user.folder, tokenFile),
    basic: username === undefined || password === undefined ? undefined : { username, password },
    ...(exec === undefined || exec === null
      ? {}
      : { exec: execPlugin(fieldsOf(exec, `exec of user ${user.name}`), user.folder) }),
  };
}

function execPlugin(fields: Fields, folder: string): ExecPlugin {
  const command = text(fields, "command");
  if (command === undefined) throw new InvalidConfig("an exec plugin of the kubeconfig has no command");
  const env = Array.isArray(fields["env"]) ? fields["env"].filter(isMapping) : [];
  const args = Array.isArray(fields["args"]) ? (fields["args"] as readonly unknown[]).map(String) : [];
  return {
    // A relative path is resolved against the kubeconfig's directory; a name without a slash is searched in PATH.
    command: command.includes("/") ? resolve(folder, command) : command,
    args,
    env: Object.fromEntries(env.map((entry) => [String(entry["name"]), String(entry["value"] ?? "")])),
    apiVersion: text(fields, "apiVersion") ?? "client.authentication.k8s.io/v1",
    provideClusterInfo: fields["provideClusterInfo"] === true,
  };
}

/** `<field>-data` (base64) has precedence over the file in `<field>`. */
function pem(from: Named<Fields>, field: string): string | undefined {
  const file = pemFile(from, field);
  if (file === undefined) return inlinePem(from, field);
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new InvalidConfig(`${field} of ${from.name}: ${(error as Error).message}`, { cause: error });
  }
}

function inlinePem(from: Named<Fields>, field: string): string | undefined {
  const data = text(from.value, `${field}-data`);
  return data === undefined ? undefined : Buffer.from(data, "base64").toString("utf8");
}

function pemFile(from: Named<Fields>, field: string): string | undefined {
  const file = text(from.value, field);
  const isInline = text(from.value, `${field}-data`) !== undefined;
  return file === undefined || isInline ? undefined : resolve(from.folder, file);
}

function collect(into: Named<Fields>[], list: unknown, field: string, folder: string): void {
  if (!Array.isArray(list)) return;
  for (const entry of list.filter(isMapping)) {
    const name = text(entry, "name");
    const value = entry[field];
    if (name === undefined || !isMapping(value)) continue;
    if (!into.some((known) => known.name === name)) into.push({ name, value, folder });
  }
}

function parseYaml(text: string, name: string): unknown {
  try {
    return load(text);
  } catch (error) {
    // The parser's message is not used: it may quote the file, which contains secrets.
    const line = (error as { mark?: { line?: number } }).mark?.line;
    throw new InvalidConfig(`${name} is not valid YAML${line === undefined ? "" : `, line ${line + 1}`}`);
  }
}

function fieldsOf(value: unknown, name: string): Fields {
  if (!isMapping(value)) throw new InvalidConfig(`${name} is not a mapping`);
  return value;
}

const isMapping = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function text(fields: Fields, name: string): string | undefined {
  const value = fields[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}
