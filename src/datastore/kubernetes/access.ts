// Finds the address of the API server and the credentials: from a kubeconfig, from settings, or from the pod's service
// account. Credentials in files (rotated tokens, renewed certificates) are read again every minute; those of an exec
// plugin are cached until they expire.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import type { SecureContextOptions } from "node:tls";
import type { KubernetesConfig } from "../config.ts";
import { InvalidConfig } from "../errors.ts";
import type { ExecPlugin, KubeconfigContext } from "./kubeconfig.ts";

export interface Credentials {
  readonly authorization?: string;
  readonly cert?: string;
  readonly key?: string;
}

export interface Access {
  readonly server: URL;
  readonly tls: SecureContextOptions & { readonly rejectUnauthorized: boolean; readonly servername?: string };
  /** Returns the credentials for the next request. */
  credentials(): Promise<Credentials>;
  /** Clears cached credentials, after the server has answered 401. */
  clearCache(): void;
}

const ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";
const FILE_CACHE_MS = 60_000; // the kubelet renews projected tokens long before they expire
const EXEC_TIMEOUT_MS = 30_000;

export async function resolveAccess(
  config: KubernetesConfig,
  env: Readonly<Record<string, string | undefined>>,
): Promise<Access> {
  const context = await contextOf(config, env);
  const server = parseServer(config.apiEndpoint ?? context.server);
  const ca = config.caFile === undefined ? context.ca : readFileSync(config.caFile, "utf8");
  const [certFile, keyFile] = [config.certFile ?? context.certFile, config.keyFile ?? context.keyFile];
  const cert = certFile === undefined ? context.cert : undefined;
  const key = keyFile === undefined ? context.key : undefined;
  const skip = config.insecureSkipTlsVerify || context.insecureSkipTlsVerify;
  const user = config.token === undefined ? context : { ...context, token: config.token };
  const source = withFiles(credentialSource(user, { server, ca, skip }), certFile, keyFile);
  return {
    server,
    tls: {
      rejectUnauthorized: !skip,
      ...(ca === undefined || skip ? {} : { ca }),
      ...(cert === undefined ? {} : { cert }),
      ...(key === undefined ? {} : { key }),
      ...(context.tlsServerName === undefined ? {} : { servername: context.tlsServerName }),
    },
    ...source,
  };
}

async function contextOf(
  config: KubernetesConfig,
  env: Readonly<Record<string, string | undefined>>,
): Promise<KubeconfigContext> {
  // The kubeconfig parser is loaded only if needed, which saves start-up time in a pod.
  if (config.kubeconfigInline !== undefined)
    return (await import("./kubeconfig.ts")).parseKubeconfig(config.kubeconfigInline, config.currentContext);
  if (config.kubeconfig !== undefined)
    return (await import("./kubeconfig.ts")).readKubeconfig(config.kubeconfig, config.currentContext);
  if (config.apiEndpoint !== undefined) return { server: config.apiEndpoint, insecureSkipTlsVerify: false };
  const [host, port] = [env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]];
  if (host === undefined || port === undefined)
    throw new InvalidConfig("no Kubernetes API server: set KUBECONFIG or K8S_API_ENDPOINT, or run inside a pod");
  return {
    server: `https://${host.includes(":") ? `[${host}]` : host}:${port}`,
    ca: readFileSync(`${ACCOUNT}/ca.crt`, "utf8"),
    tokenFile: `${ACCOUNT}/token`,
    insecureSkipTlsVerify: false,
  };
}

function parseServer(text: string): URL {
  try {
    return new URL(text.includes("://") ? text : `https://${text}`);
  } catch {
    throw new InvalidConfig(
      `invalid address of the Kubernetes API server ${JSON.stringify(text)}: want https://host:port`,
    );
  }
}

type CredentialSource = Pick<Access, "credentials" | "clearCache">;
interface ClusterAddress {
  readonly server: URL;
  readonly ca: string | undefined;
  readonly skip: boolean;
}

function credentialSource(context: KubeconfigContext, cluster: ClusterAddress): CredentialSource {
  const { token, tokenFile, basic, exec } = context;
  if (token !== undefined) return fixed({ authorization: `Bearer ${token}` });
  if (tokenFile !== undefined) return fromFile(tokenFile);
  if (exec !== undefined) return fromPlugin(exec, cluster);
  if (basic === undefined) return fixed({});
  return fixed({ authorization: `Basic ${Buffer.from(`${basic.username}:${basic.password}`).toString("base64")}` });
}

const fixed = (credentials: Credentials): CredentialSource => ({
  credentials: async () => credentials,
  clearCache: () => {},
});

const fromFile = (path: string): CredentialSource =>
  cached(() => ({ authorization: `Bearer ${readFileSync(path, "utf8").trim()}` }));

/** Calls `read` again after `FILE_CACHE_MS`, and after the server has rejected the credentials. */
function cached(read: () => Credentials): CredentialSource {
  let cache: { readonly credentials: Credentials; readonly until: number } | undefined;
  return {
    async credentials() {
      if (cache === undefined || performance.now() > cache.until)
        cache = { credentials: read(), until: performance.now() + FILE_CACHE_MS };
      return cache.credentials;
    },
    clearCache: () => (cache = undefined),
  };
}

/** Adds a client certificate from files to other credentials. */
function withFiles(
  source: CredentialSource,
  certFile: string | undefined,
  keyFile: string | undefined,
): CredentialSource {
  if (certFile === undefined && keyFile === undefined) return source;
  const read = () => ({
    ...(certFile === undefined ? {} : { cert: readFileSync(certFile, "utf8") }),
    ...(keyFile === undefined ? {} : { key: readFileSync(keyFile, "utf8") }),
  });
  read(); // reports a missing file at start
  const files = cached(read);
  return {
    credentials: async () => ({ ...(await files.credentials()), ...(await source.credentials()) }),
    clearCache() {
      files.clearCache();
      source.clearCache();
    },
  };
}

function fromPlugin(plugin: ExecPlugin, cluster: ClusterAddress): CredentialSource {
  let cache: { readonly credentials: Credentials; readonly until: number } | undefined;
  let inFlight: Promise<Credentials> | undefined;
  const renew = async (): Promise<Credentials> => {
    const { credentials, expires } = await runPlugin(plugin, cluster);
    cache = { credentials, until: expires };
    return credentials;
  };
  return {
    credentials() {
      if (cache !== undefined && Date.now() < cache.until) return Promise.resolve(cache.credentials);
      inFlight ??= renew().finally(() => (inFlight = undefined));
      return inFlight;
    },
    clearCache: () => (cache = undefined),
  };
}

/** https://kubernetes.io/docs/reference/config-api/client-authentication.v1/ */
async function runPlugin(
  plugin: ExecPlugin,
  cluster: ClusterAddress,
): Promise<{ credentials: Credentials; expires: number }> {
  const spec = { interactive: false, ...(plugin.provideClusterInfo ? { cluster: clusterInfo(cluster) } : {}) };
  const info = { apiVersion: plugin.apiVersion, kind: "ExecCredential", spec };
  const fault = (why: string) => new InvalidConfig(`credential plugin ${plugin.command} in the kubeconfig ${why}`);
  const output = await new Promise<string>((resolve, reject) => {
    const child = spawn(plugin.command, [...plugin.args], {
      env: { ...process.env, ...plugin.env, KUBERNETES_EXEC_INFO: JSON.stringify(info) },
      stdio: ["ignore", "pipe", "inherit"],
      timeout: EXEC_TIMEOUT_MS,
    });
    let text = "";
    child.stdout.on("data", (chunk: Buffer) => (text += chunk.toString()));
    child.on("error", (error) => reject(fault(`cannot be executed: ${error.message}`)));
    child.on("close", (code, signal) => (code === 0 ? resolve(text) : reject(fault(`failed with ${code ?? signal}`))));
  });
  const status = statusOf(output);
  if (status === undefined || (status["token"] ?? status["clientCertificateData"]) === undefined)
    throw fault("returned neither a token nor a certificate"); // its output is not printed, because it may be secret
  const expiry = status["expirationTimestamp"];
  return {
    credentials: {
      ...(status["token"] === undefined ? {} : { authorization: `Bearer ${status["token"]}` }),
      ...(status["clientCertificateData"] === undefined ? {} : { cert: status["clientCertificateData"] }),
      ...(status["clientKeyData"] === undefined ? {} : { key: status["clientKeyData"] }),
    },
    expires: expiry === undefined ? Number.POSITIVE_INFINITY : Date.parse(expiry) - 10_000,
  };
}

function statusOf(output: string): Readonly<Record<string, string>> | undefined {
  try {
    return (JSON.parse(output) as { readonly status?: Readonly<Record<string, string>> }).status;
  } catch {
    return undefined;
  }
}

const clusterInfo = ({ server, ca, skip }: ClusterAddress) => ({
  server: server.href.replace(/\/$/, ""),
  "certificate-authority-data": ca === undefined ? undefined : Buffer.from(ca).toString("base64"),
  ...(skip ? { "insecure-skip-tls-verify": true } : {}),
});
