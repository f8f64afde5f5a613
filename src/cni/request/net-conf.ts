// Parses the network configuration: declares every supported key with its type and default. Keys are matched without regard
// to case, as in Calico. Unknown keys are ignored here, and passed on to the IPAM plugin.
import { CniError, INTERNAL } from "../error.ts";
import type { JsonObject } from "./request.ts";

export interface NetConf {
  readonly name: string;
  readonly type: string;
  readonly datastore: DatastoreSettings;
  readonly kubernetes: { readonly kubeconfig: string; readonly k8sApiRoot: string; readonly nodeName: string };
  readonly policy: PolicySettings;
  readonly nodename: string;
  readonly nodenameFile: string;
  readonly nodenameFileOptional: boolean;
  /** The old name of `nodename`. */
  readonly hostname: string;
  /** 0 selects the MTU in the file that the node agent writes; without the file, the kernel's default. */
  readonly mtu: number;
  readonly requireMtuFile: boolean;
  readonly numQueues: number;
  readonly deviceType: string;
  readonly ipam: IpamSettings;
  readonly ipamLockFile: string;
  readonly includeDefaultRoutes: boolean;
  readonly allowIpForwarding: boolean;
  readonly features: { readonly ipAddrsNoIpam: boolean; readonly floatingIps: boolean };
  readonly readinessGates: readonly string[];
  readonly policySetupTimeoutSeconds: number;
  readonly endpointStatusDir: string;
  readonly log: LogSettings;
  readonly dataplaneOptions: JsonObject | undefined;
  readonly mesosLabels: readonly { readonly key: string; readonly value: string }[];
  /** Time limit for all datastore calls of a request. */
  readonly datastoreTimeoutSeconds: number;
}

export interface DatastoreSettings {
  readonly type: string;
  readonly sqlitePath: string;
  readonly etcdEndpoints: string;
  readonly etcdDiscoverySrv: string;
  readonly etcdKeyFile: string;
  readonly etcdCertFile: string;
  readonly etcdCaCertFile: string;
  readonly calicoApiGroup: string;
  readonly qps: number;
  readonly burst: number;
}

export interface PolicySettings {
  /** `k8s`: labels, ports and profiles come from the pod and its namespace. */
  readonly type: string;
  readonly k8sApiRoot: string;
  readonly k8sAuthToken: string;
  readonly k8sClientCertificate: string;
  readonly k8sClientKey: string;
  readonly k8sCertificateAuthority: string;
}

export interface IpamSettings {
  readonly type: string;
  readonly assignIpv4: boolean;
  readonly assignIpv6: boolean;
  readonly ipv4Pools: readonly string[];
  readonly ipv6Pools: readonly string[];
}

export interface LogSettings {
  readonly level: string;
  readonly filePath: string;
  readonly fileMaxSizeMb: number;
  readonly fileMaxAgeDays: number;
  readonly fileMaxCount: number;
}

export function parseNetConf(config: JsonObject): NetConf {
  const top = new Reader(config, "");
  const kubernetes = top.object("kubernetes");
  const policy = top.object("policy");
  const ipam = top.object("ipam");
  const features = top.object("feature_control");
  return {
    name: top.text("name"),
    type: top.text("type"),
    datastore: {
      type: top.text("datastore_type"),
      sqlitePath: top.text("sqlite_path"),
      etcdEndpoints: etcdEndpoints(top),
      etcdDiscoverySrv: top.text("etcd_discovery_srv"),
      etcdKeyFile: top.text("etcd_key_file"),
      etcdCertFile: top.text("etcd_cert_file"),
      etcdCaCertFile: top.text("etcd_ca_cert_file"),
      calicoApiGroup: top.text("calico_api_group"),
      qps: top.integer("qps"),
      burst: top.integer("burst"),
    },
    kubernetes: {
      kubeconfig: kubernetes.text("kubeconfig"),
      k8sApiRoot: kubernetes.text("k8s_api_root"),
      nodeName: kubernetes.text("node_name"),
    },
    policy: {
      type: policy.text("type"),
      k8sApiRoot: policy.text("k8s_api_root"),
      k8sAuthToken: policy.text("k8s_auth_token"),
      k8sClientCertificate: policy.text("k8s_client_certificate"),
      k8sClientKey: policy.text("k8s_client_key"),
      k8sCertificateAuthority: policy.text("k8s_certificate_authority"),
    },
    nodename: top.text("nodename"),
    nodenameFile: top.text("nodename_file") || "/var/lib/calico/nodename",
    nodenameFileOptional: top.flag("nodename_file_optional"),
    hostname: top.text("hostname"),
    mtu: top.integer("mtu"),
    requireMtuFile: top.flag("require_mtu_file"),
    numQueues: Math.max(1, top.integer("num_queues")),
    deviceType: top.text("device_type"),
    ipam: {
      type: ipam.text("type"),
      assignIpv4: ipam.text("assign_ipv4") !== "false",
      assignIpv6: ipam.text("assign_ipv6") === "true",
      ipv4Pools: ipam.texts("ipv4_pools"),
      ipv6Pools: ipam.texts("ipv6_pools"),
    },
    ipamLockFile: top.text("ipam_lock_file") || "/var/run/calico/ipam.lock",
    includeDefaultRoutes: top.flag("include_default_routes"),
    allowIpForwarding: top.object("container_settings").flag("allow_ip_forwarding"),
    features: { ipAddrsNoIpam: features.flag("ip_addrs_no_ipam"), floatingIps: features.flag("floating_ips") },
    readinessGates: top.texts("readiness_gates"),
    policySetupTimeoutSeconds: top.has("policy_setup_timeout_seconds")
      ? top.integer("policy_setup_timeout_seconds")
      : 10,
    endpointStatusDir: top.text("endpoint_status_dir") || "/var/run/calico/endpoint-status",
    log: {
      level: top.text("log_level"),
      filePath: top.text("log_file_path"),
      fileMaxSizeMb: top.integer("log_file_max_size") || 100,
      fileMaxAgeDays: top.integer("log_file_max_age") || 30,
      fileMaxCount: top.integer("log_file_max_count") || 10,
    },
    dataplaneOptions: top.has("dataplane_options") ? top.json("dataplane_options") : undefined,
    mesosLabels: mesosLabels(top),
    datastoreTimeoutSeconds: top.seconds("datastore_timeout_seconds", DAY_SECONDS) || 10,
  };
}

/** `etcd_authority` and `etcd_scheme` are the deprecated form of `etcd_endpoints`. */
function etcdEndpoints(top: Reader): string {
  const authority = top.text("etcd_authority");
  return top.text("etcd_endpoints") || (authority === "" ? "" : `${top.text("etcd_scheme") || "http"}://${authority}`);
}

function mesosLabels(top: Reader): { key: string; value: string }[] {
  const labels = top.object("args").object("org.apache.mesos").object("network_info").object("labels");
  return labels.objects("labels").map((label) => ({ key: label.text("key"), value: label.text("value") }));
}

const DAY_SECONDS = 24 * 3600;
/** Values of these keys may contain a token or a password, so error messages do not show them. */
const SECRET_KEYS: ReadonlySet<string> = new Set(["policy", "k8s_auth_token", "etcd_endpoints"]);

/** Reads the fields of one object. An error for a wrong type contains the full path of the field. */
class Reader {
  readonly #fields = new Map<string, unknown>();
  readonly #path: string;

  constructor(object: JsonObject, path: string) {
    this.#path = path;
    for (const [key, value] of Object.entries(object)) this.#fields.set(key.toLowerCase(), value);
  }

  has(name: string): boolean {
    return this.raw(name) !== undefined;
  }
  raw(name: string): unknown {
    return this.#fields.get(name) ?? undefined; // null counts as absent
  }
  text(name: string): string {
    const value = this.raw(name) ?? "";
    if (typeof value !== "string") throw this.#wrong(name, "text", value);
    return value;
  }
  flag(name: string): boolean {
    const value = this.raw(name) ?? false;
    if (typeof value !== "boolean") throw this.#wrong(name, "true or false", value);
    return value;
  }
  integer(name: string): number {
    const value = this.raw(name) ?? 0;
    if (typeof value !== "number" || !Number.isSafeInteger(value)) throw this.#wrong(name, "an integer", value);
    return value;
  }
  seconds(name: string, max: number): number {
    const value = this.integer(name);
    if (value < 0 || value > max) throw this.#wrong(name, `1 to ${max} seconds`, value);
    return value;
  }
  texts(name: string): readonly string[] {
    const value = this.raw(name) ?? [];
    if (!Array.isArray(value) || !value.every((item) => typeof item === "string"))
      throw this.#wrong(name, "a list of texts", value);
    return value;
  }
  object(name: string): Reader {
    return new Reader(this.#asObject(name, this.raw(name) ?? {}), `${this.#path}${name}.`);
  }
  /** Returns the object unchanged. */
  json(name: string): JsonObject {
    return this.#asObject(name, this.raw(name));
  }
  objects(name: string): Reader[] {
    const value = this.raw(name) ?? [];
    if (!Array.isArray(value)) throw this.#wrong(name, "a list", value);
    return value.map((item, i) => new Reader(this.#asObject(name, item), `${this.#path}${name}[${i}].`));
  }

  #asObject(name: string, value: unknown): JsonObject {
    if (typeof value !== "object" || value === null || Array.isArray(value))
      throw this.#wrong(name, "an object", value);
    return value as JsonObject;
  }
  #wrong(name: string, wanted: string, value: unknown): CniError {
    const isGroup = typeof value === "object" && value !== null; // not shown: a field may contain a secret
    const given = Array.isArray(value) ? "a list" : isGroup ? "an object" : JSON.stringify(value).slice(0, 60);
    const shown = SECRET_KEYS.has(name) ? "" : `, got ${given}`;
    return new CniError(INTERNAL, `failed to load netconf: ${this.#path}${name}: want ${wanted}${shown}`);
  }
}
