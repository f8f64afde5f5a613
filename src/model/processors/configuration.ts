// FelixConfiguration and ClusterInformation as named settings: one key per field, set or gone.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Json } from "../../lib/encoding/lossless-json.ts";
import { felixFieldSettings, felixKeyOf, settingsFrom } from "../felix-settings/index.ts";
import type { ResourceKey } from "../keys/keys.ts";
import { readClusterInformation } from "../readers/cluster-information.ts";
import type { Resource } from "../resource.ts";
import { isValueError, type ReportProblem } from "../validation/value-error.ts";
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
      const known = new Set([...felixFieldSettings(), ...settings.keys(), ...(extras.get(key.name) ?? [])]);
      const extra = new Set([...settings.keys()].filter((name) => !felixFieldSettings().has(name)));
      if (extra.size > 0) extras.set(key.name, extra);
      else extras.delete(key.name);
      return [...known].map((name) => setting(host, name, settings.get(name)));
    },
  };
}

/** A FelixConfiguration as settings by parameter name. */
export function felixSettings(resource: Resource | undefined, report: ReportProblem): Map<string, string> {
  const settings = new Map<string, string>();
  if (resource === undefined) return settings;
  for (const [field, value] of fieldsOf(resource, report)) {
    const { key, text } = felixKeyOf(field, value);
    if (text !== undefined) settings.set(key, text);
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
    const cluster =
      resource === undefined ? undefined : readClusterInformation(resource, (error) => report(error.message));
    const byField: Readonly<Record<string, string | undefined>> = {
      clusterGUID: cluster?.clusterGuid,
      clusterType: cluster?.clusterType,
      calicoVersion: cluster?.calicoVersion,
      variant: cluster?.variant,
    };
    return [
      ...settingsFrom("ClusterInformation").map(([name, field]) => setting("", name, byField[field])),
      { key: { type: "ready" }, value: cluster?.isDatastoreReady },
    ];
  },
};

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
