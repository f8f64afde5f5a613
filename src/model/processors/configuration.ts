// FelixConfiguration, ClusterInformation and BGPConfiguration as named settings: one key per field, set or gone.
import { JsonReader } from "../../lib/json-reader.ts";
import type { Json } from "../../lib/lossless-json.ts";
import { FELIX_PARAMETERS, felixParameterOf, felixParameterText } from "../felix-parameters.ts";
import type { ResourceKey } from "../keys.ts";
import type { Resource } from "../resource.ts";
import { isValueError, type ReportProblem } from "../value-error.ts";
import { type DerivedUpdate, resourceKey, resourceOf, type UpdateProcessor } from "./processor.ts";

const ANNOTATION_PREFIX = "config.projectcalico.org/";

/**
 * `default` sets for all hosts, `node.<name>` for one; others reach the consumer whole, which knows its node's labels.
 * Annotations `config.projectcalico.org/<Name>` say any parameter, over the fields.
 */
export function felixConfigProcessor(): UpdateProcessor {
  /** By resource: names set that no field would name again. */
  const extras = new Map<string, ReadonlySet<string>>();
  return {
    restart: () => extras.clear(),
    process: (update, report) => {
      const key = resourceKey(update.key, "FelixConfiguration");
      const resource = resourceOf(update);
      const host = hostOf(key);
      if (host === undefined) return [{ key, value: resource }];
      const settings = felixSettings(resource, report);
      const known = new Set([...FELIX_PARAMETERS, ...settings.keys(), ...(extras.get(key.name) ?? [])]);
      const extra = new Set([...settings.keys()].filter((name) => !PARAMETERS.has(name)));
      if (extra.size > 0) extras.set(key.name, extra);
      else extras.delete(key.name);
      return [...known].map((name) => setting(host, name, settings.get(name)));
    },
  };
}

const PARAMETERS: ReadonlySet<string> = new Set(FELIX_PARAMETERS);

/** A FelixConfiguration as settings by parameter name. */
export function felixSettings(resource: Resource | undefined, report: ReportProblem): Map<string, string> {
  const settings = new Map<string, string>();
  if (resource === undefined) return settings;
  for (const [field, value] of fieldsOf(resource, report)) {
    const parameter = felixParameterOf(field);
    const text = felixParameterText(parameter, value);
    if (text !== undefined) settings.set(parameter, text);
  }
  for (const [name, value] of Object.entries(resource.metadata.annotations ?? {}))
    if (name.startsWith(ANNOTATION_PREFIX) && value !== "") settings.set(name.slice(ANNOTATION_PREFIX.length), value);
  return settings;
}

/** Cluster-wide facts, and whether the datastore is ready to be used. */
export const clusterInformationProcessor: UpdateProcessor = {
  restart: () => {},
  process: (update, report) => {
    resourceKey(update.key, "ClusterInformation");
    const resource = resourceOf(update);
    if (update.key.type === "resource" && update.key.name !== "default") return [];
    const fields = new Map(resource === undefined ? [] : fieldsOf(resource, report));
    const text = (name: string): string | undefined => {
      const value = fields.get(name);
      return typeof value === "string" && value !== "" ? value : undefined;
    };
    const ready = fields.get("datastoreReady");
    return [
      setting("", "ClusterGUID", text("clusterGUID")),
      setting("", "ClusterType", text("clusterType")),
      setting("", "CalicoVersion", text("calicoVersion")),
      setting("", "Variant", text("variant")),
      {
        key: { type: "ready" },
        value: resource === undefined ? undefined : typeof ready === "boolean" ? ready : undefined,
      },
    ];
  },
};

/** Names of the BGP service's settings, by field. */
const BGP_FIELDS: Readonly<Record<string, string>> = {
  logSeverityScreen: "loglevel",
  nodeToNodeMeshEnabled: "node_mesh",
  asNumber: "as_num",
  serviceLoadBalancerIPs: "svc_loadbalancer_ips",
  serviceExternalIPs: "svc_external_ips",
  serviceClusterIPs: "svc_cluster_ips",
  serviceLoadBalancerAggregation: "svc_loadbalancer_aggregation",
  communities: "communities",
  prefixAdvertisements: "prefix_advertisements",
  listenPort: "listen_port",
  nodeMeshPassword: "node_mesh_password",
  nodeMeshMaxRestartTime: "node_mesh_restart_time",
};

export const bgpConfigProcessor: UpdateProcessor = {
  restart: () => {},
  process: (update, report) => {
    const key = resourceKey(update.key, "BGPConfiguration");
    const host = hostOf(key);
    if (host === undefined) return [];
    const resource = resourceOf(update);
    const fields = new Map(resource === undefined ? [] : fieldsOf(resource, report));
    return Object.entries(BGP_FIELDS).map(([field, name]): DerivedUpdate => {
      const value = bgpText(field, fields.get(field));
      return host === ""
        ? { key: { type: "bgpGlobalConfig", name }, value }
        : { key: { type: "bgpHostConfig", host, name }, value };
    });
  },
};

function bgpText(field: string, value: Json | undefined): string | undefined {
  if (value === undefined || value === null || value === "") return undefined;
  if (field === "nodeToNodeMeshEnabled") return JSON.stringify({ enabled: value === true });
  if (field === "logSeverityScreen") return String(value).toLowerCase();
  if (Array.isArray(value) && field.startsWith("service"))
    return value.length === 0
      ? undefined
      : value.map((item) => String((item as { readonly cidr?: Json }).cidr ?? "")).join(",");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** "" for the settings of all hosts, a name for one, undefined for neither. */
function hostOf(key: ResourceKey): string | undefined {
  if (key.name === "default") return "";
  return key.name.startsWith("node.") && key.name.length > 5 ? key.name.slice(5) : undefined;
}

function setting(host: string, name: string, value: string | undefined): DerivedUpdate {
  return host === ""
    ? { key: { type: "globalConfig", name }, value }
    : { key: { type: "hostConfig", host, name }, value };
}

function fieldsOf(resource: Resource, report: ReportProblem): readonly (readonly [string, Json])[] {
  try {
    const spec = new JsonReader(resource.spec, "spec");
    return spec.names.map((name) => [name, spec.raw(name) ?? null] as const);
  } catch (error) {
    if (!isValueError(error)) throw error;
    report(error.message);
    return [];
  }
}
