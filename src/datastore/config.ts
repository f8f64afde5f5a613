// Chooses the datastore from the configuration, and opens it. A driver is loaded only when it is opened.
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Logger } from "../lib/log/log.ts";
import type { ApiConfig, Environment } from "./api-config.ts";
import type { Datastore } from "./datastore.ts";
import { InvalidConfig, type UnreadableEntry } from "./errors.ts";

export interface SqliteConfig {
  readonly type: "sqlite";
  readonly path: string;
  /** No setting names a datastore: calicoctl prints a hint on a terminal. */
  readonly isFallback: boolean;
}
export interface EtcdConfig {
  readonly type: "etcdv3";
  /** URLs; empty when they are discovered. */
  readonly endpoints: readonly string[];
  readonly discoverySrv?: string;
  readonly credentials?: { readonly username: string; readonly password: string };
  /** Either all PEM texts or all file names. */
  readonly tls?: EtcdTls;
}
export interface EtcdTls {
  readonly ca?: PemSource;
  readonly cert?: PemSource;
  readonly key?: PemSource;
}
export type PemSource = { readonly file: string } | { readonly pem: string };

export interface KubernetesConfig {
  readonly type: "kubernetes";
  /** Colon-separated list of files. Without it, `kubeconfigInline` and `apiEndpoint`: the pod's service account. */
  readonly kubeconfig?: string;
  readonly kubeconfigInline?: string;
  readonly currentContext?: string;
  readonly apiEndpoint?: string;
  readonly keyFile?: string;
  readonly certFile?: string;
  readonly caFile?: string;
  readonly token?: string;
  readonly insecureSkipTlsVerify: boolean;
  readonly disableNodePoll: boolean;
  readonly usePodCidr: boolean;
  readonly clientQps?: number;
  readonly clientBurst?: number;
  /** Prefix of the host interfaces of pods, for endpoints that are derived from pods. */
  readonly interfacePrefix?: string;
  /** `projectcalico.org/v3` for the native custom resources; undefined = discover it. */
  readonly apiGroup?: string;
}
export type DatastoreConfig = SqliteConfig | EtcdConfig | KubernetesConfig;

export const DEFAULT_SQLITE_PATH = "/var/lib/calico/calico.db";
const ACCOUNT_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/** The environment variables and files of the host. Tests pass their own. */
export interface HostEnvironment {
  readonly env: Environment;
  readonly exists?: (path: string) => boolean;
}

/** Returns the datastore that is configured by type, or else the one that has an address, or else SQLite. */
export function chooseDatastore(api: ApiConfig, host: HostEnvironment): DatastoreConfig {
  const type = api.datastoreType;
  switch (type) {
    case "etcdv3":
      return etcdConfig(api);
    case "kubernetes":
      return kubernetesConfig(api, host);
    case "sqlite":
      return { type, path: api.sqlitePath ?? DEFAULT_SQLITE_PATH, isFallback: false };
    case undefined:
      if (api.etcdEndpoints !== undefined || api.etcdDiscoverySrv !== undefined) return etcdConfig(api);
      if (api.sqlitePath === undefined && hasKubernetesAddress(api, host)) return kubernetesConfig(api, host);
      return { type: "sqlite", path: api.sqlitePath ?? DEFAULT_SQLITE_PATH, isFallback: api.sqlitePath === undefined };
    default:
      throw new InvalidConfig(`unknown datastore type: ${type}; want sqlite, etcdv3 or kubernetes (DATASTORE_TYPE)`);
  }
}

export interface OpenOptions {
  readonly onUnreadable?: (error: UnreadableEntry) => void;
  /** Timeout of one operation. */
  readonly timeoutMs?: number;
  /** For a program that ends after a few reads and writes, without a watch: the driver may use its cheapest connection. */
  readonly oneShot?: boolean;
  /** Does not create a SQLite datastore. For all programs except those that write the first entries of a cluster. */
  readonly mustExist?: boolean;
  readonly log?: Logger;
  /** Requests that opening needs are retried until this signal aborts; by default they are sent once. */
  readonly retryUntil?: AbortSignal;
  /** Called before every write. If it throws, the write is not sent: for a leader that may have lost its lease. */
  readonly beforeWrite?: () => void;
}

export async function openDatastore(config: DatastoreConfig, options: OpenOptions = {}): Promise<Datastore> {
  switch (config.type) {
    case "sqlite":
      return (await import("./sqlite/sqlite-datastore.ts")).openSqliteFile(config.path, options);
    case "etcdv3":
      return (await import("./etcd/etcd-datastore.ts")).openEtcd(config, options);
    case "kubernetes":
      return (await import("./kubernetes/kubernetes-datastore.ts")).openKubernetes(config, options);
  }
}

function etcdConfig(api: ApiConfig): EtcdConfig {
  const endpoints = (api.etcdEndpoints ?? "")
    .split(",")
    .map((e) => e.trim())
    .filter((e) => e !== "");
  if (endpoints.length > 0 && api.etcdDiscoverySrv !== undefined)
    throw new InvalidConfig(
      'multiple discovery or bootstrap options specified, use either "etcdEndpoints" or "etcdDiscoverySrv"',
    );
  if (endpoints.length === 0 && api.etcdDiscoverySrv === undefined)
    throw new InvalidConfig("no etcd endpoints specified");
  const { etcdUsername: username, etcdPassword: password, etcdDiscoverySrv: discoverySrv } = api;
  return {
    type: "etcdv3",
    endpoints,
    discoverySrv,
    credentials: username === undefined || password === undefined ? undefined : { username, password },
    ...etcdTls(api),
  };
}

function etcdTls(api: ApiConfig): { tls?: EtcdTls } {
  const inline = [api.etcdCACert, api.etcdCert, api.etcdKey].some((pem) => pem !== undefined);
  const files = [api.etcdCACertFile, api.etcdCertFile, api.etcdKeyFile].some((file) => file !== undefined);
  if (inline && files) throw new InvalidConfig("cannot mix inline certificate-key and certificate / key files");
  if (!inline && !files) return {};
  const source = (pem: string | undefined, file: string | undefined): PemSource | undefined =>
    pem !== undefined ? { pem } : file !== undefined ? { file } : undefined;
  const ca = source(api.etcdCACert, api.etcdCACertFile);
  const cert = source(api.etcdCert, api.etcdCertFile);
  const key = source(api.etcdKey, api.etcdKeyFile);
  if ((cert === undefined) !== (key === undefined))
    throw new InvalidConfig("etcd client certificate and key must be set together; one of them is missing");
  return {
    tls: {
      ca,
      cert,
      key,
    },
  };
}

const homeKubeconfig = ({ env, exists = existsSync }: HostEnvironment): string | undefined => {
  const path = env["HOME"] === undefined ? undefined : join(env["HOME"], ".kube/config");
  return path !== undefined && exists(path) ? path : undefined;
};

function hasKubernetesAddress(api: ApiConfig, host: HostEnvironment): boolean {
  const { env, exists = existsSync } = host;
  return (
    api.kubeconfig !== undefined ||
    api.kubeconfigInline !== undefined ||
    api.k8sAPIEndpoint !== undefined ||
    homeKubeconfig(host) !== undefined ||
    (env["KUBERNETES_SERVICE_HOST"] !== undefined && exists(ACCOUNT_TOKEN))
  );
}

function kubernetesConfig(api: ApiConfig, host: HostEnvironment): KubernetesConfig {
  const named = api.kubeconfig ?? api.kubeconfigInline ?? api.k8sAPIEndpoint;
  const kubeconfig = api.kubeconfig ?? (named === undefined ? homeKubeconfig(host) : undefined);
  return {
    type: "kubernetes",
    kubeconfig,
    kubeconfigInline: api.kubeconfigInline,
    currentContext: api.k8sCurrentContext,
    apiEndpoint: api.k8sAPIEndpoint,
    keyFile: api.k8sKeyFile,
    certFile: api.k8sCertFile,
    caFile: api.k8sCAFile,
    token: api.k8sAPIToken,
    insecureSkipTlsVerify: api.k8sInsecureSkipTLSVerify ?? false,
    disableNodePoll: api.k8sDisableNodePoll ?? false,
    usePodCidr: api.usePodCIDR ?? false,
    interfacePrefix: host.env["FELIX_INTERFACEPREFIX"]?.split(",")[0]?.trim() || undefined,
    clientQps: api.k8sClientQPS,
    clientBurst: api.k8sClientBurst,
    apiGroup: api.calicoAPIGroup,
  };
}
