// How to reach an API server and prove who we are: from a kubeconfig, from explicit settings, or from the account of the
// pod we run in. Credentials that change on disk (rotated tokens, renewed certificates) are read again; those from an
// exec plugin are kept until they expire.
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
  /** What to send with the next request. */
  credentials(): Promise<Credentials>;
  /** The server said 401: whatever was kept is not to be used again. */
  forget(): void;
}

const ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";
const FILE_LIFE_MS = 60_000; // kubelet rewrites projected tokens long before they expire
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
  const said = config.token === undefined ? context : { ...context, token: config.token };
  const source = withFiles(credentialSource(said, { server, ca, skip }), certFile, keyFile);
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
  // Loaded only when there is one: the parser is not free and a pod needs none.
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
    throw new InvalidConfig(`${JSON.stringify(text)} is no address of an API server: want https://host:port`);
  }
}

type Source = Pick<Access, "credentials" | "forget">;
interface Reached {
  readonly server: URL;
  readonly ca: string | undefined;
  readonly skip: boolean;
}

function credentialSource(context: KubeconfigContext, cluster: Reached): Source {
  const { token, tokenFile, basic, exec } = context;
  if (token !== undefined) return fixed({ authorization: `Bearer ${token}` });
  if (tokenFile !== undefined) return fromFile(tokenFile);
  if (exec !== undefined) return fromPlugin(exec, cluster);
  if (basic === undefined) return fixed({});
  return fixed({ authorization: `Basic ${Buffer.from(`${basic.username}:${basic.password}`).toString("base64")}` });
}

const fixed = (credentials: Credentials): Source => ({
  credentials: async () => credentials,
  forget: () => {},
});

const fromFile = (path: string): Source =>
  reread(() => ({ authorization: `Bearer ${readFileSync(path, "utf8").trim()}` }));

/** Read again now and then, and when the server no longer takes it. */
function reread(read: () => Credentials): Source {
  let kept: { readonly credentials: Credentials; readonly until: number } | undefined;
  return {
    async credentials() {
      if (kept === undefined || performance.now() > kept.until)
        kept = { credentials: read(), until: performance.now() + FILE_LIFE_MS };
      return kept.credentials;
    },
    forget: () => (kept = undefined),
  };
}

/** A client certificate that stands in files goes along with whatever else proves who we are. */
function withFiles(source: Source, certFile: string | undefined, keyFile: string | undefined): Source {
  if (certFile === undefined && keyFile === undefined) return source;
  const read = () => ({
    ...(certFile === undefined ? {} : { cert: readFileSync(certFile, "utf8") }),
    ...(keyFile === undefined ? {} : { key: readFileSync(keyFile, "utf8") }),
  });
  read(); // what is missing is told now
  const files = reread(read);
  return {
    credentials: async () => ({ ...(await files.credentials()), ...(await source.credentials()) }),
    forget() {
      files.forget();
      source.forget();
    },
  };
}

function fromPlugin(plugin: ExecPlugin, cluster: Reached): Source {
  let kept: { readonly credentials: Credentials; readonly until: number } | undefined;
  let asking: Promise<Credentials> | undefined;
  const ask = async (): Promise<Credentials> => {
    const { credentials, expires } = await runPlugin(plugin, cluster);
    kept = { credentials, until: expires };
    return credentials;
  };
  return {
    credentials() {
      if (kept !== undefined && Date.now() < kept.until) return Promise.resolve(kept.credentials);
      asking ??= ask().finally(() => (asking = undefined));
      return asking;
    },
    forget: () => (kept = undefined),
  };
}

/** https://kubernetes.io/docs/reference/config-api/client-authentication.v1/ */
async function runPlugin(plugin: ExecPlugin, cluster: Reached): Promise<{ credentials: Credentials; expires: number }> {
  const spec = { interactive: false, ...(plugin.provideClusterInfo ? { cluster: clusterInfo(cluster) } : {}) };
  const info = { apiVersion: plugin.apiVersion, kind: "ExecCredential", spec };
  const fault = (why: string) => new InvalidConfig(`credential plugin ${plugin.command} of the kubeconfig ${why}`);
  const output = await new Promise<string>((resolve, reject) => {
    const child = spawn(plugin.command, [...plugin.args], {
      env: { ...process.env, ...plugin.env, KUBERNETES_EXEC_INFO: JSON.stringify(info) },
      stdio: ["ignore", "pipe", "inherit"],
      timeout: EXEC_TIMEOUT_MS,
    });
    let text = "";
    child.stdout.on("data", (chunk: Buffer) => (text += chunk.toString()));
    child.on("error", (error) => reject(fault(`cannot be run: ${error.message}`)));
    child.on("close", (code, signal) => (code === 0 ? resolve(text) : reject(fault(`failed with ${code ?? signal}`))));
  });
  const status = statusOf(output);
  if (status === undefined || (status["token"] ?? status["clientCertificateData"]) === undefined)
    throw fault("gave neither a token nor a certificate"); // what it gave may be secret
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

const clusterInfo = ({ server, ca, skip }: Reached) => ({
  server: server.href.replace(/\/$/, ""),
  "certificate-authority-data": ca === undefined ? undefined : Buffer.from(ca).toString("base64"),
  ...(skip ? { "insecure-skip-tls-verify": true } : {}),
});
