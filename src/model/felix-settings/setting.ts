// Defines the declaration of a Felix setting. The following are derived from it: the FelixConfiguration field with its
// schema, the environment variable, the configuration key that syncers emit, the typed configuration and the
// documentation.
import type * as z from "zod/mini";
import type { ValueType } from "./value-type.ts";

/**
 * @typeParam T the value in the typed configuration
 * @typeParam F the name of the FelixConfiguration field
 * @typeParam S the schema of that field
 */
export interface FelixSetting<
  T = unknown,
  F extends string | undefined = string | undefined,
  S extends z.ZodMiniType = z.ZodMiniType,
> {
  /** The field of FelixConfiguration that sets it; undefined if there is none. */
  readonly field: F;
  readonly type: ValueType<T, z.ZodMiniType, S>;
  /** As text; empty if the setting is unset by default. */
  readonly default: string;
  readonly meaning: string;
  /** Another resource that sets it. */
  readonly source?: SettingSource;
  /** Read only from the environment and the file, because it is needed to connect to the datastore. */
  readonly isLocal: boolean;
  /** Felix does not start with an invalid value. Invalid values of other settings are reported and ignored. */
  readonly isFatal: boolean;
  /** The text `none` is invalid, and that is fatal. */
  readonly rejectsNone: boolean;
  /** A change is applied without a restart of Felix. */
  readonly isLive: boolean;
  /** Why the setting, which Calico has, does nothing in calico-ts; absent if it has an effect. */
  readonly noEffect?: string;
}

export interface SettingSource {
  readonly kind: "ClusterInformation" | "Node";
  /** Path in the spec, such as `bgp.ipv4IPIPTunnelAddr`. */
  readonly path: string;
}

type Options = Partial<Pick<FelixSetting, "isFatal" | "rejectsNone" | "isLive" | "noEffect">>;
const DEFAULT_OPTIONS = { isLocal: false, isFatal: false, rejectsNone: false, isLive: false } as const;

/** A setting of FelixConfiguration. Without a field, only an annotation of the resource can set it. */
export const setting = <T, F extends string | undefined, S extends z.ZodMiniType>(
  field: F,
  type: ValueType<T, z.ZodMiniType, S>,
  defaultText: string,
  meaning: string,
  options: Options = {},
): FelixSetting<T, F, S> => ({ ...DEFAULT_OPTIONS, field, type, default: defaultText, meaning, ...options });

/** A setting of the environment and the file alone. */
export const localSetting = <T>(
  type: ValueType<T>,
  defaultText: string,
  meaning: string,
  options: Options = {},
): FelixSetting<T, undefined> => ({ ...setting(undefined, type, defaultText, meaning, options), isLocal: true });

/** A setting that syncers derive from another resource than FelixConfiguration. */
export const derivedSetting = <T>(
  source: SettingSource,
  type: ValueType<T>,
  defaultText: string,
  meaning: string,
  options: Options = {},
): FelixSetting<T, undefined> => ({ ...setting(undefined, type, defaultText, meaning, options), source });
