// Settings from six layers, the later over the earlier. Every change computes all of them anew from the defaults, so
// what comes out depends on the layers alone.
//
// Two things differ from the original on purpose. A bad value is reported and passed over: it does not hide a good one
// in a layer below. And names are compared without regard to case everywhere, so that settings from the environment
// reach the datastore client too.
import type { DataplaneMessage } from "../../calc/index.ts";
import { BadValue, type Parameter, type Surroundings } from "./parameter.ts";
import { type FelixConfig, findParameter, type ParameterName, PARAMETERS, parameterNames } from "./parameters.ts";

/** From the weakest to the strongest; the numbers are those of the dataplane protocol. */
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

export type RawLayer = Readonly<Record<string, string>>;

/** The settings cannot be used as they stand; the agent waits for better ones. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

export interface ResolvedConfig {
  readonly config: FelixConfig;
  /** The text that won, by name; names nobody knows as they were given, for external drivers. */
  readonly raw: RawLayer;
  readonly sources: ReadonlyMap<ParameterName, ConfigSource>;
  /** What to tell a person, one sentence each. */
  readonly problems: readonly string[];
}

export class ConfigEngine {
  readonly #surroundings: Surroundings;
  readonly #layers = new Map<ConfigSource, RawLayer>();
  #resolved: ResolvedConfig;

  constructor(surroundings: Surroundings, defaults: { readonly hostname: string }) {
    this.#surroundings = surroundings;
    this.#defaultHostname = defaults.hostname;
    this.#resolved = this.#resolve();
  }
  readonly #defaultHostname: string;

  get resolved(): ResolvedConfig {
    return this.#resolved;
  }
  get config(): FelixConfig {
    return this.#resolved.config;
  }

  /**
   * Replaces layers and computes everything anew.
   * @returns the settings whose value is another now
   * @throws ConfigError and changes nothing when a value that may not be wrong is
   */
  update(layers: Readonly<Partial<Record<ConfigSource, RawLayer>>>): ReadonlySet<ParameterName> {
    const before = new Map(this.#layers);
    for (const [source, raw] of Object.entries(layers)) this.#layers.set(source as ConfigSource, raw);
    try {
      const resolved = this.#resolve();
      const changed = parameterNames().filter((name) => !same(this.#resolved.config[name], resolved.config[name]));
      this.#resolved = resolved;
      return new Set(changed);
    } catch (error) {
      this.#layers.clear();
      for (const [source, raw] of before) this.#layers.set(source, raw);
      throw error;
    }
  }

  /** All layers as they are and what won, so that a receiver can compute the same. */
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
    const values = new Map<ParameterName, unknown>();
    const raw: Record<string, string> = {};
    const sources = new Map<ParameterName, ConfigSource>();
    const problems: string[] = [];
    for (const source of SOURCES)
      for (const [given, text] of Object.entries(this.#layers.get(source) ?? {})) {
        const name = findParameter(given);
        if (name === undefined) {
          raw[given] = text;
          problems.push(`${source}: no setting ${given}; passed on to an external dataplane driver as it is`);
        } else if (PARAMETERS[name].isLocal && isDatastore(source))
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
    for (const name of parameterNames()) if (!values.has(name)) values.set(name, this.#fallback(name));
    return { config: Object.fromEntries(values) as FelixConfig, raw, sources, problems };
  }

  #parse(name: ParameterName, text: string, source: ConfigSource): { value: unknown } | { problem: string } {
    const parameter: Parameter<unknown> = PARAMETERS[name];
    if (text.toLowerCase() === "none") {
      if (parameter.refusesNone) throw new ConfigError(`${source}: ${name} cannot be set to none`);
      return { value: parameter.type.zero };
    }
    try {
      return { value: parameter.type.parse(text, this.#surroundings) };
    } catch (error) {
      if (!(error instanceof BadValue)) throw error;
      const fault = `${source}: ${name}: ${error.message}`;
      if (parameter.isFatal) throw new ConfigError(fault);
      return { problem: `${fault}; ignored` };
    }
  }

  #fallback(name: ParameterName): unknown {
    if (name === "FelixHostname") return this.#defaultHostname;
    const parameter: Parameter<unknown> = PARAMETERS[name];
    if (parameter.fallback === "") return parameter.type.zero;
    // A default that names a program or file need not be there until it is used.
    if (parameter.type.name === "program" || parameter.type.name === "file") return parameter.fallback;
    return parameter.type.parse(parameter.fallback, this.#surroundings);
  }
}

/** Equal values, whatever their text was. */
const same = (a: unknown, b: unknown): boolean =>
  a instanceof RegExp && b instanceof RegExp ? String(a) === String(b) : Bun.deepEquals(a, b, true);
