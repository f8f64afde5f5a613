// Resolves Felix's settings from six sources; a later source takes precedence. Every update starts from the defaults,
// so the result depends only on the sources.
//
// Two deliberate differences from Calico: an invalid value is reported and ignored, so it does not hide a valid value
// of an earlier source; and names have any letter case in all sources, so settings of the environment also reach the
// datastore client.
import type { DataplaneMessage } from "../../calc/index.ts";
import {
  FELIX_SETTINGS,
  type FelixConfig,
  felixDefaultOf,
  type FelixSetting,
  type FelixSettingName,
  felixSettingNames,
  findFelixSetting,
  type HostFiles,
  InvalidSetting,
} from "../../model/index.ts";

/** In order of precedence, lowest first. The numbers are those of the dataplane protocol. */
export const CONFIG_SOURCES = {
  "datastore (global)": 1,
  "datastore (per-node-selector)": 2,
  "datastore (per-host)": 3,
  "config file": 4,
  "environment variable": 5,
  "internal override": 6,
} as const;
export type ConfigSource = keyof typeof CONFIG_SOURCES;
const SOURCES = Object.keys(CONFIG_SOURCES) as readonly ConfigSource[];
const isDatastore = (source: ConfigSource): boolean => source.startsWith("datastore");

/** The texts of one source, by name of the setting. */
export type RawLayer = Readonly<Record<string, string>>;

/** The settings are invalid; Felix waits for valid ones. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

export interface ResolvedConfig {
  readonly config: FelixConfig;
  /** The text that takes precedence, by name. Unknown names are kept as they are, for external dataplane drivers. */
  readonly raw: RawLayer;
  readonly sources: ReadonlyMap<FelixSettingName, ConfigSource>;
  /** Values that are ignored and why, one sentence each. */
  readonly problems: readonly string[];
}

export class ConfigEngine {
  readonly #host: HostFiles;
  readonly #defaultHostname: string;
  readonly #layers = new Map<ConfigSource, RawLayer>();
  #resolved: ResolvedConfig;

  constructor(host: HostFiles, defaults: { readonly hostname: string }) {
    this.#host = host;
    this.#defaultHostname = defaults.hostname;
    this.#resolved = this.#resolve();
  }

  get resolved(): ResolvedConfig {
    return this.#resolved;
  }
  get config(): FelixConfig {
    return this.#resolved.config;
  }

  /**
   * Replaces the texts of some sources.
   * @returns the settings whose value changed
   * @throws ConfigError and changes nothing if the value of a fatal setting is invalid
   */
  update(layers: Readonly<Partial<Record<ConfigSource, RawLayer>>>): ReadonlySet<FelixSettingName> {
    const before = new Map(this.#layers);
    for (const [source, raw] of Object.entries(layers)) this.#layers.set(source as ConfigSource, raw);
    try {
      const resolved = this.#resolve();
      const changed = felixSettingNames().filter(
        (name) => !isSameValue(this.#resolved.config[name], resolved.config[name]),
      );
      this.#resolved = resolved;
      return new Set(changed);
    } catch (error) {
      this.#layers.clear();
      for (const [source, raw] of before) this.#layers.set(source, raw);
      throw error;
    }
  }

  /** Returns the values of all sources and the effective ones, so that a receiver can compute the same settings. */
  toMessage(): Extract<DataplaneMessage, { readonly type: "configUpdate" }> {
    const last = this.#layers.has("internal override") ? SOURCES : SOURCES.slice(0, -1);
    return {
      type: "configUpdate",
      config: this.#resolved.raw,
      sourceToRawConfig: Object.fromEntries(
        last.map((source) => [CONFIG_SOURCES[source], { source, config: this.#layers.get(source) ?? {} }]),
      ),
    };
  }

  #resolve(): ResolvedConfig {
    const values = new Map<FelixSettingName, unknown>();
    const raw: Record<string, string> = {};
    const sources = new Map<FelixSettingName, ConfigSource>();
    const problems: string[] = [];
    for (const source of SOURCES)
      for (const [rawName, text] of Object.entries(this.#layers.get(source) ?? {})) {
        const name = findFelixSetting(rawName);
        if (name === undefined) {
          raw[rawName] = text;
          problems.push(`${source}: unknown setting ${rawName}; passed unchanged to an external dataplane driver`);
        } else if (FELIX_SETTINGS[name].isLocal && isDatastore(source))
          problems.push(`${source}: ${name} can only be set in the file or the environment; ignored`);
        else if (text !== "") {
          const parsed = this.#parse(name, text, source);
          if ("problem" in parsed) {
            problems.push(parsed.problem);
            continue;
          }
          values.set(name, parsed.value);
          raw[name] = text;
          sources.set(name, source);
        }
      }
    for (const name of felixSettingNames()) if (!values.has(name)) values.set(name, this.#default(name));
    return { config: Object.fromEntries(values) as FelixConfig, raw, sources, problems };
  }

  #default(name: FelixSettingName): unknown {
    return name === "FelixHostname" ? this.#defaultHostname : felixDefaultOf(name);
  }

  #parse(name: FelixSettingName, text: string, source: ConfigSource): { value: unknown } | { problem: string } {
    const setting: FelixSetting = FELIX_SETTINGS[name];
    if (text.toLowerCase() === "none") {
      if (setting.rejectsNone) throw new ConfigError(`${source}: ${name} cannot be set to none`);
      return { value: setting.type.zero };
    }
    try {
      return { value: setting.type.parse(text, this.#host) };
    } catch (error) {
      if (!(error instanceof InvalidSetting)) throw error;
      const problem = `${source}: ${name}: ${error.message}`;
      if (setting.isFatal) throw new ConfigError(problem);
      return { problem: `${problem}; ignored` };
    }
  }
}

/** Compares values, not their texts. */
export const isSameValue = (a: unknown, b: unknown): boolean =>
  a instanceof RegExp && b instanceof RegExp ? String(a) === String(b) : Bun.deepEquals(a, b, true);
