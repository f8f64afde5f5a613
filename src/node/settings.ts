// Parses calico-node's environment variables.
import type { Environment } from "../datastore/index.ts";
import { DEFAULT_NODENAME_FILE } from "../kernel/index.ts";
import { durationMs } from "../model/index.ts";

/** How routes reach other nodes. As in Calico, other values mean `bird`. */
export type Backend = "bird" | "vxlan" | "none";

export interface NodeSettings {
  readonly env: Environment;
  readonly nodenameFile: string;
  readonly backend: Backend;
  readonly waitForDatastore: boolean;
  /** `IP`, `IP6`: empty, `autodetect`, `none`, an address or a network. */
  readonly ip: Readonly<Record<4 | 6, string>>;
  readonly autodetection: Readonly<Record<4 | 6, string>>;
  readonly pollIntervalMs: number;
  readonly checksConflicts: boolean;
  readonly asNumber: string;
  readonly kubernetesNode: string | undefined;
  readonly clusterType: string;
  readonly fileLogging: boolean;
  /** Whether calico-node renews the CNI plugin's credentials. */
  readonly managesCni: boolean;
  /** `CALICO_BGP_METRICS_PORT`, `CALICO_BGP_METRICS_HOST`: address of the BGP metrics server; port 0 disables it. */
  readonly bgpMetrics: { readonly port: number; readonly host: string };
}

/** The CNI plugin's kubeconfig, as seen in calico-node's container. */
export const CNI_KUBECONFIG = "/host/etc/cni/net.d/calico-kubeconfig";

export function readSettings(env: Environment): NodeSettings {
  const text = (name: string) => env[name] ?? "";
  return {
    env,
    nodenameFile: text("CALICO_NODENAME_FILE") || DEFAULT_NODENAME_FILE,
    backend: backendOf(text("CALICO_NETWORKING_BACKEND")),
    waitForDatastore: text("WAIT_FOR_DATASTORE") === "true",
    ip: { 4: text("IP"), 6: text("IP6") },
    autodetection: { 4: text("IP_AUTODETECTION_METHOD"), 6: text("IP6_AUTODETECTION_METHOD") },
    pollIntervalMs: positiveMs(text("AUTODETECT_POLL_INTERVAL")) ?? 60_000,
    checksConflicts: text("DISABLE_NODE_IP_CHECK") !== "true",
    asNumber: text("AS"),
    kubernetesNode: text("CALICO_K8S_NODE_REF") || undefined,
    clusterType: text("CLUSTER_TYPE"),
    fileLogging: text("CALICO_DISABLE_FILE_LOGGING") !== "true",
    managesCni: text("CALICO_MANAGE_CNI").toLowerCase() !== "false" && text("KUBERNETES_SERVICE_HOST") !== "",
    bgpMetrics: { port: portOf(text("CALICO_BGP_METRICS_PORT")), host: text("CALICO_BGP_METRICS_HOST") },
  };
}

const portOf = (word: string): number => (/^\d{1,5}$/.test(word) && Number(word) <= 65535 ? Number(word) : 0);

/** The empty string means the default. */
export const isBackend = (word: string): boolean => ["", "bird", "vxlan", "none"].includes(word.toLowerCase());

function backendOf(word: string): Backend {
  const lower = word.toLowerCase();
  return lower === "none" || lower === "vxlan" ? lower : "bird";
}

/** Unset means the default; `false`, `0`, `no`, `n`, `f` are false; any other value, even an empty one, is true. */
export function flagOf(env: Environment, name: string, fallback: boolean): boolean {
  const word = env[name];
  return word === undefined ? fallback : !["false", "0", "no", "n", "f"].includes(word.toLowerCase());
}

/** Parses `90s` or `1m30s`; undefined if the text is not a duration, or not positive. */
export function positiveMs(text: string): number | undefined {
  const ms = durationMs(text);
  return ms !== undefined && ms > 0 ? ms : undefined;
}
