// Collects all Felix settings, and derives other forms from them. Each setting is declared once, in the file of its subject.
//
//   environment variable   FELIX_<name>, in any letter case
//   configuration key      <name>, emitted by syncers with the value as text (Typha's protocol carries these keys)
//   resource field         `field` of FelixConfiguration, with the schema of the setting's type
//   typed configuration    FelixConfig[name]
import type * as z from "zod/mini";
import type { Json } from "../../lib/encoding/lossless-json.ts";
import { bpfSettings } from "./bpf.ts";
import { connectionSettings } from "./connection.ts";
import { derivedSettings } from "./derived.ts";
import { flowLogSettings } from "./flow-logs.ts";
import { hostSettings } from "./host.ts";
import { loggingSettings } from "./logging.ts";
import { monitoringSettings } from "./monitoring.ts";
import { netfilterSettings } from "./netfilter.ts";
import { policySettings } from "./policy.ts";
import { processSettings } from "./process.ts";
import { routingSettings } from "./routing.ts";
import type { FelixSetting, SettingSource } from "./setting.ts";
import { tunnelSettings } from "./tunnels.ts";
import { type FieldSchemas, fieldText, type HostFiles, InvalidSetting } from "./value-type.ts";

export type { FailsafePort } from "./network-types.ts";
export type { FelixSetting } from "./setting.ts";
export { type HostFiles, InvalidSetting } from "./value-type.ts";

/** By subject, as in the documentation. */
export const FELIX_SETTING_GROUPS = {
  "Datastore and Typha": connectionSettings,
  "Process and debugging": processSettings,
  "Logs and logged packets": loggingSettings,
  "Health, metrics, status reports": monitoringSettings,
  "Host and integrations": hostSettings,
  "Policy and NAT": policySettings,
  "nftables, iptables, ipset": netfilterSettings,
  "VXLAN, IPIP, WireGuard": tunnelSettings,
  Routes: routingSettings,
  "Flow logs": flowLogSettings,
  "eBPF and XDP": bpfSettings,
  "From other resources": derivedSettings,
} as const;

export const FELIX_SETTINGS = {
  ...connectionSettings,
  ...processSettings,
  ...loggingSettings,
  ...monitoringSettings,
  ...hostSettings,
  ...policySettings,
  ...netfilterSettings,
  ...tunnelSettings,
  ...routingSettings,
  ...flowLogSettings,
  ...bpfSettings,
  ...derivedSettings,
} as const;

type Settings = typeof FELIX_SETTINGS;
export type FelixSettingName = keyof Settings;

/** The values of all settings. A module takes only its own: `Pick<FelixConfig, "HealthPort" | …>`. */
export type FelixConfig = {
  readonly [N in FelixSettingName]: Settings[N] extends FelixSetting<infer T> ? T : never;
};

type FieldOf<S> = S extends { readonly field: infer F extends string } ? F : never;
/** The schemas of the fields of FelixConfiguration, by field. */
export type FelixFieldShape = {
  [N in FelixSettingName as FieldOf<Settings[N]>]: ReturnType<Settings[N]["type"]["schema"]>;
};

/** Computed when first used: most programs import this file and use no setting. */
function lazy<T>(compute: () => T): () => T {
  let value: T | undefined;
  return () => (value ??= compute());
}

export const felixSettingNames = lazy(() => Object.keys(FELIX_SETTINGS) as readonly FelixSettingName[]);

/** The settings that are fields of FelixConfiguration, in alphabetical order. */
export const felixFieldSettings = lazy((): ReadonlySet<string> => new Set([...namesByField().values()].sort()));

const namesByLowerCase = lazy(() => new Map(felixSettingNames().map((name) => [name.toLowerCase(), name])));
const namesByField = lazy(
  () =>
    new Map(
      felixSettingNames().flatMap((name) => {
        const { field } = FELIX_SETTINGS[name];
        return field === undefined ? [] : [[field.toLowerCase(), name] as const];
      }),
    ),
);

/** Finds a setting by its name in any letter case. */
export const findFelixSetting = (name: string): FelixSettingName | undefined =>
  namesByLowerCase().get(name.toLowerCase());

/**
 * The configuration key and its text for a field of FelixConfiguration; the text is undefined if the field sets
 * nothing. A field that this version does not define becomes a key of its own name: a newer version wrote it.
 */
export function felixKeyOf(field: string, value: Json): { readonly key: string; readonly text: string | undefined } {
  const name = namesByField().get(field.toLowerCase());
  if (name === undefined) return { key: field.charAt(0).toUpperCase() + field.slice(1), text: fieldText(value) };
  return { key: name, text: FELIX_SETTINGS[name].type.toText(value) };
}

/** Settings that syncers derive from a resource of this kind, with the path of the field. */
export const settingsFrom = (kind: SettingSource["kind"]): readonly (readonly [FelixSettingName, string])[] =>
  Object.entries(derivedSettings).flatMap(([name, { source }]) =>
    source?.kind === kind ? [[name as FelixSettingName, source.path] as const] : [],
  );

/** Builds the schemas of all fields. Loads nothing by itself: the caller passes the functions of kinds/fields.ts. */
export function felixFieldShape(f: FieldSchemas): FelixFieldShape {
  const shape: Record<string, z.ZodMiniType> = {};
  for (const name of felixSettingNames()) {
    const setting: FelixSetting = FELIX_SETTINGS[name];
    if (setting.field !== undefined) shape[setting.field] = setting.type.schema(f, setting.default);
  }
  return shape as FelixFieldShape;
}

const UNCHECKED_FILES: HostFiles = { exists: () => true, findExecutable: (name) => name };

/** The default of a setting. A file or program that it names need not exist until it is used. */
export function felixDefaultOf<N extends FelixSettingName>(name: N): FelixConfig[N] {
  const setting: FelixSetting = FELIX_SETTINGS[name];
  const value = setting.default === "" ? setting.type.zero : setting.type.parse(setting.default, UNCHECKED_FILES);
  return value as FelixConfig[N];
}

/** The value for a text of the datastore; the default if there is none or it is invalid. */
export function felixSettingValue<N extends FelixSettingName>(name: N, text: string | undefined): FelixConfig[N] {
  const { type, rejectsNone }: FelixSetting = FELIX_SETTINGS[name];
  if (text === undefined || text === "") return felixDefaultOf(name);
  if (text.toLowerCase() === "none") return rejectsNone ? felixDefaultOf(name) : (type.zero as FelixConfig[N]);
  try {
    return type.parse(text, UNCHECKED_FILES) as FelixConfig[N];
  } catch (error) {
    if (!(error instanceof InvalidSetting)) throw error;
    return felixDefaultOf(name);
  }
}
