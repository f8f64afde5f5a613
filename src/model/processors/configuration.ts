// Converts FelixConfiguration and ClusterInformation to settings: one key per field, which is set or deleted.
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
 * The resource `default` sets values for all hosts, `node.<name>` for one host. Other resources are emitted unchanged,
 * because the consumer has to match their selector with the labels of its node. Annotations
 * `config.projectcalico.org/<Name>` set any parameter and take precedence over fields.
 */
export function felixConfigProcessor(): UpdateProcessor {
  /** By resource: settings that were emitted and are not fields, so that they can be deleted later. */
  const extras = new Map<string, ReadonlySet<string>>();
  return {
    reset: () => extras.clear(),
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

/** Returns the settings of a FelixConfiguration, by parameter name. */
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

/** Emits the settings of ClusterInformation, and whether the datastore may be used. */
export const clusterInformationProcessor: UpdateProcessor = {
  reset: () => {},
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

/** Returns "" for the settings of all hosts, the name of one host, or undefined for any other resource. */
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
